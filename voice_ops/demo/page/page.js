// One session at a time: opened over the session API, audio over a WebSocket, transcript over server-sent events.
import { Waveform } from "./waveform.js";
import { events } from "./events.js";
import { Meter } from "./meter.js";

const PIECE_MS = 100;
const TOKEN_HEADER = "X-Voice-Token";

const byId = (id) => document.getElementById(id);
const buttons = [byId("microphone"), byId("sample")];
const waveform = new Waveform(byId("waveform"), byId("share"));
const meter = new Meter(byId("level"));
const { gateway } = await (await fetch("config.json")).json();

function say(text, state = "live") {
  const status = byId("status");
  status.textContent = text;
  status.dataset.state = state;
}

async function open() {
  const response = await fetch(`${gateway}/v1/sessions`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ transport: "websocket" }),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${answer.error}: ${answer.detail ?? ""}`);
  return answer;
}

function connect(session, rate) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(session.media.websocket, ["voice.v1", session.token]);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      socket.send(JSON.stringify({ type: "start", rate, encoding: "pcm16" }));
      resolve(socket);
    };
    socket.onerror = () => reject(new Error("the gateway refuses the audio socket"));
  });
}

function toPcm16(samples) {
  return Int16Array.from(samples, (value) => Math.max(-1, Math.min(1, value)) * 32767);
}

// Collects samples into chunks of 100 ms, draws them and sends them.
function sender(socket, rate) {
  const size = (rate * PIECE_MS) / 1000;
  let held = new Float32Array(0);
  return (samples) => {
    const joined = new Float32Array(held.length + samples.length);
    joined.set(held);
    joined.set(samples, held.length);
    let at = 0;
    for (; at + size <= joined.length; at += size) {
      const piece = joined.subarray(at, at + size);
      waveform.add(piece, rate);
      meter.add(piece);
      if (socket.readyState === WebSocket.OPEN) socket.send(toPcm16(piece));
    }
    held = joined.slice(at);
  };
}

async function fromMicrophone() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const context = new AudioContext();
  await context.audioWorklet.addModule("capture.js");
  const capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
  context.createMediaStreamSource(stream).connect(capture);
  return {
    rate: context.sampleRate,
    run: (take, stopped) => {
      capture.port.onmessage = (message) => take(message.data);
      return stopped.then(() => {
        stream.getTracks().forEach((track) => track.stop());
        return context.close();
      });
    },
  };
}

// Sends the sample in real time.
async function fromSample() {
  const encoded = await (await fetch("sample.wav")).arrayBuffer();
  const audio = await new OfflineAudioContext(1, 1, 48000).decodeAudioData(encoded);
  const samples = audio.getChannelData(0);
  return {
    rate: audio.sampleRate,
    run: async (take, stopped) => {
      let isStopped = false;
      stopped.then(() => { isStopped = true; });
      const size = (audio.sampleRate * PIECE_MS) / 1000;
      const began = performance.now();
      for (let piece = 0; piece * size < samples.length && !isStopped; piece += 1) {
        const due = began + piece * PIECE_MS;
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
        take(samples.subarray(piece * size, (piece + 1) * size));
      }
    },
  };
}

function show(kind, said) {
  const committed = document.createElement("b");
  committed.textContent = (kind === "partial" && said.committed) || "";
  const tentative = kind === "partial" ? said.text.slice(committed.textContent.length) : "";
  byId("partial").replaceChildren(committed, tentative);
  waveform.heard(said.start_ms, said.end_ms);
  if (kind === "partial" || !said.text) return;
  const line = document.createElement("li");
  const when = document.createElement("time");
  when.textContent = `${(said.start_ms / 1000).toFixed(1)}–${(said.end_ms / 1000).toFixed(1)} s`;
  line.append(when, document.createTextNode(said.text));
  byId("transcript").append(line);
  byId("stages").replaceChildren(
    ...Object.entries(said.stages_ms ?? {}).map(([stage, took]) => {
      const row = document.createElement("tr");
      for (const text of [stage, took.toFixed(0)]) row.insertCell().textContent = text;
      return row;
    }),
  );
}

async function follow(session) {
  const url = new URL(session.events, `${gateway}/v1/`).href;
  for await (const event of events(url, { [TOKEN_HEADER]: session.token })) {
    if (event.type === "partial" || event.type === "final") show(event.type, event.data);
    if (event.type === "gap") say(`Audio was lost: ${event.data.start_ms}–${event.data.end_ms} ms.`, "failed");
    if (event.type === "error") say(event.data.detail, "failed");
    if (event.type === "end") {
      waveform.finish();
      say(event.data.complete ? "Done." : "Ended before all was transcribed.", event.data.complete ? "done" : "failed");
      return;
    }
  }
}

async function run(makeSource) {
  const pressed = document.activeElement;
  buttons.forEach((button) => { button.disabled = true; });
  byId("transcript").replaceChildren();
  byId("stages").replaceChildren();
  waveform.clear();
  try {
    say("Opening a session …");
    const source = await makeSource();
    const session = await open();
    const socket = await connect(session, source.rate);
    const following = follow(session);
    const stopped = new Promise((resolve) => {
      byId("stop").onclick = resolve;
      socket.onclose = resolve;
    });
    byId("stop").disabled = false;
    byId("stop").focus();
    say("Listening …");
    await source.run(sender(socket, source.rate), stopped);
    byId("stop").disabled = true;
    say("Finishing …");
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "end" }));
    await following;
  } catch (error) {
    say(error.message, "failed");
  } finally {
    meter.clear();
    buttons.forEach((button) => { button.disabled = false; });
    if (document.activeElement === byId("stop") || document.activeElement === document.body) pressed.focus();
    byId("stop").disabled = true;
  }
}

byId("microphone").onclick = () => run(fromMicrophone);
byId("sample").onclick = () => run(fromSample);
// The button is only enabled once its handler is installed.
buttons.forEach((button) => { button.disabled = false; });
say("Ready.", "idle");
