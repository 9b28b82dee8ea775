// Server-sent events with a request header, which EventSource cannot send. Comes back by Last-Event-ID after a break.

const RECONNECT_MS = 1000;
const TRIES = 30;

function parse(block) {
  const fields = { type: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value] = line.match(/^([a-z]+): ?(.*)$/) ?? [];
    if (name === "event") fields.type = value;
    if (name === "id") fields.id = value;
    if (name === "data") fields.data += value;
  }
  return fields.data ? { ...fields, data: JSON.parse(fields.data) } : null;
}

async function* once(url, headers) {
  const response = await fetch(url, { headers });
  if (!response.ok) throw new Error(`the event stream is refused: ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (held + value).split("\n\n");
    held = blocks.pop();
    yield* blocks.map(parse).filter(Boolean);
  }
}

export async function* events(url, headers) {
  const sent = { ...headers };
  for (let failures = 0; failures < TRIES; failures += 1) {
    try {
      for await (const event of once(url, sent)) {
        failures = 0;
        if (event.id) sent["Last-Event-ID"] = event.id;
        if (event.type === "token") sent["X-Voice-Token"] = event.data.token;
        yield event;
        if (event.type === "end") return;
      }
    } catch (error) {
      if (failures === TRIES - 1) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}
