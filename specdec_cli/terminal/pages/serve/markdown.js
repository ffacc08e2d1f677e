// How a line of prose looks, from its Markdown (pure). Law: the parts of a line, joined, are the line; marks stay in it.

const INLINE = /(`+)(?!`)(.+?)(?<!`)\1(?!`)|(\*\*|__)(?=\S)(.+?)(?<=\S)\3|(?<![\w*_])([*_])(?=[^\s*_])(.+?)(?<=[^\s*_])\5(?![\w*_])/g;
const BLOCK = /^(\s*)(?:(#{1,6}\s+)|([-*+])\s)/;

/** [text, names] of each part of `line`: strong, em, verbatim, heading, bullet, cells of a table, and mark for what is not shown. */
export function looks(line) {
  if (/^\s*\|.*\|\s*$/.test(line)) return [[line, ["cells"]]];
  const [, blanks = "", heading, bullet] = BLOCK.exec(line) ?? [];
  const sign = heading ?? bullet ?? "";
  const first = heading ? [sign, ["mark"]] : [sign, ["bullet"]];
  const rest = inline(line.slice(blanks.length + sign.length), heading ? ["heading"] : []);
  return [[blanks, []], first, ...rest].filter(([text]) => text);
}

function inline(text, names) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, ticks, code, double, strong, , em] = match;
    const mark = ticks ?? double ?? match[5];
    const inside = ticks ? [[code, [...names, "verbatim"]]] : inline(strong ?? em, [...names, double ? "strong" : "em"]);
    found.push([text.slice(from, match.index), names], [mark, ["mark"]], ...inside, [mark, ["mark"]]);
    from = match.index + whole.length;
  }
  return [...found, [text.slice(from), names]].filter(([part]) => part);
}
