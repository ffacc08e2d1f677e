// The chat: a conversation with the pair that is chosen. Law: the key is kept for this tab alone, the conversation only
// where its reader says so, and one answer runs at a time.

import { Answer, questionElement } from "./answer.js";
import { element } from "./element.js";
import { chunks, loadedModel, models } from "./stream.js";

const KEY = "specdec-key", KEPT = "specdec-chat";
const NEAR_END_PIXELS = 60, MOST_ROWS = 8;
const EXAMPLES = { demo: "Return the lines of a file.", other: "Write a Python function that merges two sorted lists." };

const at = (id) => document.getElementById(id);
const [log, question, send, stop, login, key, model] = ["log", "question", "send", "stop", "login", "key", "model"].map(at);
const titles = Object.fromEntries([...at("legend").children].map((item) => [item.className, item.title]));
const [welcome, example] = ["welcome", "example"].map(at); // in the page only until the first question

const chat = { model: "specdec", models: [], turns: [], running: null, follows: true };

/** Who answers here; asks for the key where the server wants one. */
async function greet() {
  try {
    chat.models = await models(sessionStorage.getItem(KEY));
    model.replaceChildren(...chat.models.map(({ id }) => element("option", "", id)));
    at("choice").hidden = chat.models.length < 2;
    introduce();
    closeDoor();
  } catch (error) {
    if (error.status === 401) return openDoor();
    at("models").textContent = `${error.message}: ${error.hint ?? ""}`;
  }
}

/** Says who is chosen. */
function introduce() {
  const { id, target, draft, meta } = chat.models[model.selectedIndex];
  const parts = [target, draft].filter(Boolean).map(shortened).join(" with ");
  [chat.model, chat.limit] = [id, meta?.n_ctx_train];
  document.title = `${id} · specdec`;
  at("models").textContent = at("choice").hidden ? `${id}: ${parts}` : parts;
  example.textContent = EXAMPLES[id.startsWith("demo") ? "demo" : "other"];
  example.hidden = false;
  question.placeholder = `Ask ${id}`;
}

function shortened(name) {
  return name.replace(/^specdec:/, "").split("/").slice(-2).join("/");
}

/** Asks `text`; what got no answer is in the field again. */
async function ask(text) {
  const [turns, controller] = [chat.turns, new AbortController()];
  const [asked, answer] = shown(text);
  run(controller);
  follow(true);
  tellLoading(answer);
  try {
    for await (const chunk of chunks(request(text), sessionStorage.getItem(KEY), controller.signal)) {
      answer.take(chunk);
      follow();
    }
    say(answer.end());
  } catch (error) {
    if (error.name === "AbortError") say(answer.end());
    else refuse(error, asked, answer);
  }
  if (chat.turns !== turns) return;
  run(null);
  if (answer.text) turns.push({ role: "user", content: text }, { role: "assistant", content: answer.text });
  else write(question.value || text);
  keep();
  follow();
}

/** A question and an answer in the log. */
function shown(text) {
  const [asked, answer] = [questionElement(text), new Answer(chat.model, titles, chat.limit)];
  answer.retry.addEventListener("click", () => {
    if (chat.running) return;
    chat.turns.splice(-2);
    for (const one of [asked, answer.whole]) one.remove();
    ask(text);
  });
  welcome.remove();
  log.append(asked, answer.whole);
  return [asked, answer];
}

/** The chat stays in this browser where the reader says so, and nowhere else. */
function keep() {
  if (at("keep").checked) localStorage.setItem(KEPT, JSON.stringify(chat.turns));
  else localStorage.removeItem(KEPT);
}

/** The chat that was kept, if it can be read. */
function recall() {
  const text = localStorage.getItem(KEPT);
  at("keep").checked = text !== null;
  try {
    const turns = JSON.parse(text ?? "[]");
    for (let place = 0; place + 1 < turns.length; place += 2) {
      shown(turns[place].content)[1].recall(turns[place + 1].content);
      chat.turns.push(...turns.slice(place, place + 2));
    }
  } catch {
    localStorage.removeItem(KEPT);
  }
  follow(true);
}

/** An answer of a pair that is not in memory waits until it is. */
async function tellLoading(answer) {
  const words = `loading ${chat.model} …`;
  if (chat.model !== (await loadedModel()) && answer.loads(words)) say(words);
}

function request(text) {
  const system = at("system").value.trim();
  const first = system ? [{ role: "system", content: system }] : [];
  const messages = [...first, ...chat.turns, { role: "user", content: text }];
  const settings = { temperature: at("temperature"), max_tokens: at("longest") };
  const chosen = Object.entries(settings).filter(([, input]) => input.value !== "");
  const numbers = Object.fromEntries(chosen.map(([name, input]) => [name, input.valueAsNumber]));
  return { model: chat.models.length > 1 ? chat.model : undefined, messages, stream: true, specdec: true, ...numbers };
}

function refuse(error, asked, answer) {
  if (error.status !== 401) return answer.fail(error);
  asked.remove();
  answer.whole.remove();
  if (!log.firstElementChild) log.append(welcome);
  openDoor();
}

function write(text) {
  question.value = text;
  fit();
}

/** The field is as high as its lines; browsers that know `field-sizing` count folded ones, too. */
function fit() {
  question.rows = Math.min(question.value.split("\n").length, MOST_ROWS);
}

function run(controller) {
  chat.running = controller;
  send.hidden = controller !== null;
  stop.hidden = controller === null;
}

/** Tells a screen reader once, at the end. */
function say(text) {
  at("status").textContent = text;
}

/** Keeps the end in view for a reader who is there already. */
function follow(always = false) {
  chat.follows ||= always;
  if (chat.follows) log.scrollTop = log.scrollHeight;
}

function openDoor() {
  at("refused").textContent = sessionStorage.getItem(KEY) ? "That is not its key." : "";
  sessionStorage.removeItem(KEY);
  key.value = "";
  login.hidden = false;
  key.focus();
}

function closeDoor() {
  if (login.hidden) return;
  login.hidden = true;
  question.focus();
}

function submit(event) {
  event.preventDefault();
  const text = question.value.trim();
  const wrong = [...at("settings").querySelectorAll("input")].find((input) => !input.checkValidity());
  if (wrong) at("settings").open = true;
  if (chat.running || !text || (wrong && !wrong.reportValidity())) return;
  write("");
  question.focus();
  ask(text);
}

function clear() {
  chat.running?.abort();
  chat.turns = [];
  run(null);
  log.replaceChildren(welcome);
  keep();
  write("");
  question.focus();
}

at("ask").addEventListener("submit", submit);
question.addEventListener("keydown", (event) => {
  // Safari ends the composition before it tells of the key that ended it, and gives that the number 229.
  const composes = event.isComposing || event.keyCode === 229;
  if (event.key === "Enter" && !event.shiftKey && !composes) submit(event);
});
question.addEventListener("input", fit);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") chat.running?.abort();
});
stop.addEventListener("click", () => {
  chat.running?.abort();
  question.focus();
});
at("fresh").addEventListener("click", clear);
example.addEventListener("click", ({ target }) => {
  question.focus();
  ask(target.textContent);
});
model.addEventListener("change", introduce);
at("keep").addEventListener("change", keep);
at("unsaid").addEventListener("change", ({ target }) => {
  document.body.classList.toggle("shows-unsaid", target.checked);
  follow();
});
new ResizeObserver(() => follow()).observe(log);
log.addEventListener("scroll", () => {
  chat.follows = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PIXELS;
});
login.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, key.value);
  greet();
});
greet().then(recall);
