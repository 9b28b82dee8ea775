// Forwards microphone audio in blocks of 128 samples between -1 and 1.
class Capture extends AudioWorkletProcessor {
  process([[channel]]) {
    if (channel) this.port.postMessage(channel.slice());
    return true;
  }
}
registerProcessor("capture", Capture);
