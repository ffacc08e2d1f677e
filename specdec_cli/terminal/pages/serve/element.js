// Elements of the page. Law: text enters by textContent alone.

/** An element with its class, its text, and what is inside. */
export function element(tag, name = "", text = "", ...inside) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.textContent = text;
  made.append(...inside);
  return made;
}
