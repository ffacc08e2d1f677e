// Talks to the server that the page came from. Law: a refusal is two lines, what happened and what to do.

export class Refusal extends Error {
  constructor(status, message, hint) {
    super(message);
    Object.assign(this, { status, hint });
  }
}

const HINTS = {
  401: "give the key that the server was started with",
  413: "shorten the question, or start a new chat",
  429: "the server is busy; send it again soon",
  500: "the server's terminal says more",
  503: "start the server again: specdec serve",
};
const GONE = ["the server does not answer", "is it still running? start it again: specdec serve"];
const BROKEN = ["the answer breaks off: the server is gone", GONE[1]];
const MEND = "mend that, or choose another model, and send it again";
const REREAD = "change the question or the settings, and send it again";

/** The models that can be asked, the server's own first: id, target, draft of each. */
export async function models(key) {
  const response = await reach("/v1/models", { headers: headers(key) });
  return (await response.json()).data;
}

/** The id of the model that is in memory; undefined if there is none, or nobody knows. */
export async function loadedModel() {
  const response = await fetch("/health").catch(() => null);
  const { model, loaded } = response?.ok ? await response.json() : {};
  return loaded ? model : undefined;
}

/** The chunks of the answer to `body`, as they come. */
export async function* chunks(body, key, signal) {
  const sent = { method: "POST", headers: headers(key), body: JSON.stringify(body), signal };
  const response = await reach("/v1/chat/completions", sent);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw refusal(500, chunk.error);
    yield chunk;
  }
  throw new Refusal(0, ...BROKEN);
}

function headers(key) {
  const own = { "Content-Type": "application/json" };
  return key ? { ...own, Authorization: `Bearer ${key}` } : own;
}

async function reach(path, sent) {
  const response = await fetch(path, sent).catch((error) => {
    throw error.name === "AbortError" ? error : new Refusal(0, ...GONE);
  });
  if (response.ok) return response;
  const { error } = await response.json();
  throw refusal(response.status, error, response.headers.get("Retry-After"));
}

function refusal(status, { message, code }, seconds) {
  const known = { context_length_exceeded: HINTS[413], model_not_loaded: MEND }[code];
  const later = seconds ? `send it again in ${seconds} s` : null;
  return new Refusal(status, message, known ?? later ?? HINTS[status] ?? REREAD);
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Refusal(0, ...BROKEN);
    });
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    yield* parts.filter((part) => part.startsWith("data: ")).map((part) => part.slice(6));
  }
}
