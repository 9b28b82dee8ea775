// Draws the sent audio with one column per 20 ms: green if an event covers it, grey if the VAD dropped it, and pale if
// its state is unknown.

const COLUMN_MS = 20;
const SHORTEST_VIEW = 400;

export class Waveform {
  constructor(canvas, share) {
    this.canvas = canvas;
    this.share = share;
    this.clear();
  }

  clear() {
    this.peaks = [];
    this.spans = new Map();
    this.isOver = false;
    this.share.textContent = "";
    this.draw();
  }

  add(samples, rate) {
    const size = (rate * COLUMN_MS) / 1000;
    for (let at = 0; at < samples.length; at += size) {
      this.peaks.push(samples.subarray(at, at + size).reduce((peak, value) => Math.max(peak, Math.abs(value)), 0));
    }
    this.draw();
  }

  // An utterance grows with its partials: its start names it.
  heard(startMs, endMs) {
    this.spans.set(startMs, endMs);
    this.draw();
  }

  // No further transcripts follow.
  finish() {
    this.isOver = true;
    this.draw();
  }

  draw() {
    const style = getComputedStyle(document.documentElement);
    const context = this.canvas.getContext("2d");
    const { width, height } = this.canvas;
    const columns = Math.max(this.peaks.length, SHORTEST_VIEW);
    context.clearRect(0, 0, width, height);
    const known = this.isOver ? Infinity : Math.max(0, ...this.spans.values());
    let dropped = 0;
    this.peaks.forEach((peak, column) => {
      const at = column * COLUMN_MS;
      const isHeard = [...this.spans].some(([start, end]) => at >= start && at < end);
      const isDropped = !isHeard && at < known;
      dropped += isDropped ? 1 : 0;
      context.fillStyle = style.getPropertyValue(isHeard ? "--accent" : isDropped ? "--quiet" : "--pending");
      const tall = Math.max(2, peak * height);
      context.fillRect((column * width) / columns, (height - tall) / 2, Math.max(1, width / columns - 0.5), tall);
    });
    if (this.isOver) {
      this.share.textContent = `${Math.round((100 * dropped) / this.peaks.length)} % of the audio was dropped`;
    }
  }
}
