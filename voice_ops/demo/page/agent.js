// A conversation over OpenAI's realtime protocol: PCM16 of 24 kHz both ways.
import { Meter } from "./meter.js";

const RATE = 24000;
const PIECE = RATE / 50;

const byId = (id) => document.getElementById(id);
const { agent } = await (await fetch("config.json")).json();
const meter = new Meter(byId("level"));
let leave = () => {};

function say(text, state = "live") {
  const status = byId("status");
  status.textContent = text;
  status.dataset.state = state;
}

function note(who, text) {
  const line = document.createElement("li");
  line.dataset.who = who;
  line.textContent = text;
  line.ariaLabel = `${who}: ${text}`;
  byId("transcript").append(line);
}

const toBase64 = (bytes) => btoa(String.fromCharCode(...bytes));
const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// Plays chunks one after the other, and discards unplayed audio when the caller speaks.
function loudspeaker(context) {
  let playing = new Set();
  let due = 0;
  return {
    play(bytes) {
      const samples = new Int16Array(bytes.buffer);
      const piece = context.createBuffer(1, samples.length, RATE);
      piece.getChannelData(0).set(Float32Array.from(samples, (value) => value / 32768));
      const source = new AudioBufferSourceNode(context, { buffer: piece });
      source.connect(context.destination);
      source.onended = () => playing.delete(source);
      due = Math.max(due, context.currentTime);
      source.start(due);
      due += piece.duration;
      playing.add(source);
    },
    silence() {
      playing.forEach((source) => source.stop());
      playing = new Set();
      due = 0;
    },
  };
}

// Time from the end of speech at the microphone to the first sound of the answer, as measured by this page.
function timer() {
  let isDue = false;
  return {
    begin() { isDue = true; },
    answer() {
      if (isDue && meter.voiceAt) byId("latency").textContent = `after ${Math.round(performance.now() - meter.voiceAt)} ms`;
      isDue = false;
    },
  };
}

function listen(socket, speaker) {
  const latency = timer();
  const events = {
    "session.created": () => say("Speak."),
    "input_audio_buffer.speech_started": () => { speaker.silence(); say("Listening."); },
    "conversation.item.input_audio_transcription.completed": ({ transcript }) => {
      latency.begin();
      note("you", transcript);
      say("Thinking.");
    },
    "response.output_audio.delta": ({ delta }) => {
      latency.answer();
      speaker.play(fromBase64(delta));
      say("Answering.");
    },
    "response.done": () => say("Speak."),
    "response.output_audio_transcript.done": ({ transcript }) => note("agent", transcript),
  };
  socket.onmessage = ({ data }) => { const event = JSON.parse(data); events[event.type]?.(event); };
}

async function talk() {
  const context = new AudioContext({ sampleRate: RATE });
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true } });
  const socket = new WebSocket(`${agent}/v1/realtime`, ["realtime"]);
  let capture;
  const end = (text, state) => {
    stream.getTracks().forEach((track) => track.stop());
    context.close();
    if (capture) capture.port.onmessage = null;  // pieces that are still on their way would move the meter again
    meter.clear();
    byId("talk").disabled = false;
    // Move keyboard focus back to the button.
    if (document.activeElement === byId("stop") || document.activeElement === document.body) byId("talk").focus();
    byId("stop").disabled = true;
    say(text, state);
  };
  leave = () => socket.close();
  // Set before the module is awaited, since the agent can refuse in the meantime.
  socket.onclose = ({ code, reason }) => (code <= 1005 ? end("Done.", "done") : end(`${code}: ${reason}`, "failed"));
  listen(socket, loudspeaker(context));
  try {
    await context.audioWorklet.addModule("capture.js");
  } catch (error) {
    if (socket.readyState === WebSocket.CLOSED) return;
    socket.onclose = null;
    socket.close();
    end(error.message, "failed");
    return;
  }
  if (socket.readyState > WebSocket.OPEN) return;
  capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
  context.createMediaStreamSource(stream).connect(capture);
  let held = [];
  capture.port.onmessage = ({ data }) => {
    meter.add(data);
    held.push(...data);
    while (held.length >= PIECE) {
      const piece = Int16Array.from(held.splice(0, PIECE), (value) => Math.max(-1, Math.min(1, value)) * 32767);
      const audio = toBase64(new Uint8Array(piece.buffer));
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "input_audio_buffer.append", audio }));
    }
  };
}

byId("talk").onclick = () => {
  byId("talk").disabled = true;
  byId("stop").disabled = false;
  byId("stop").focus();
  say("Connecting.");
  talk().catch((error) => {
    byId("talk").disabled = false;
    byId("talk").focus();
    byId("stop").disabled = true;
    say(error.message, "failed");
  });
};
byId("stop").onclick = () => leave();
document.onkeydown = ({ key }) => { if (key === "Escape") leave(); };
// The button is only enabled once its handler is installed.
byId("talk").disabled = false;
say("Ready.", "idle");
