// Shows the microphone level, and stores the time of the last detected speech.
const FLOOR_DB = -60;
const VOICE_DB = -40;
const SHOWN_EVERY_MS = 50;

export class Meter {
  constructor(element) {
    this.element = element;
    this.clear();
  }

  clear() {
    this.voiceAt = 0;
    this.peakDb = FLOOR_DB;
    this.shownAt = 0;
    this.element.value = 0;
  }

  add(samples) {
    const power = samples.reduce((sum, value) => sum + value * value, 0) / samples.length;
    const db = Math.max(FLOOR_DB, 10 * Math.log10(power + 1e-12));
    const now = performance.now();
    this.peakDb = Math.max(this.peakDb, db);
    if (db > VOICE_DB) this.voiceAt = now;
    if (now - this.shownAt < SHOWN_EVERY_MS) return;
    this.element.value = (this.peakDb - FLOOR_DB) / -FLOOR_DB;
    this.shownAt = now;
    this.peakDb = FLOOR_DB;
  }
}
