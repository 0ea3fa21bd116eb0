// SPDX-License-Identifier: Apache-2.0
// Markdown as nodes. Text only ever becomes text: nothing that a model writes is read as HTML, and links go to http(s) alone.

const make = (name, ...children) => {
  const node = document.createElement(name);
  node.append(...children);
  return node;
};

// What may stand within a line, in the order in which it is looked for.
const INLINE = [
  [/`+([^`]|[^`][\s\S]*?[^`])`+/y, (m) => make("code", m[1].trim())],
  [/\*\*(?=\S)([\s\S]+?\S?)\*\*/y, (m) => make("strong", ...inline(m[1]))],
  [/__(?=\S)([\s\S]+?\S?)__(?!\w)/y, (m) => make("strong", ...inline(m[1]))],
  [/\*(?=[^\s*])([\s\S]*?[^\s*])\*/y, (m) => make("em", ...inline(m[1]))],
  [/_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/y, (m) => make("em", ...inline(m[1]))],
  [/~~(?=\S)([\s\S]+?)~~/y, (m) => make("del", ...inline(m[1]))],
  [/\[([^\]\n]+)\]\((\S+?)\)/y, (m) => link(m[2], inline(m[1]))],
  [/https?:\/\/[^\s<>()]*[^\s<>().,;:!?]/y, (m) => link(m[0], [m[0]])],
  [/\\([\\`*_{}[\]()#+\-.!~|>])/y, (m) => m[1]],
];

function link(href, children) {
  if (!/^https?:\/\//i.test(href)) return make("span", ...children);
  const a = make("a", ...children);
  a.href = href;
  a.rel = "noopener noreferrer";
  a.target = "_blank";
  return a;
}

function inline(text) {
  const out = [];
  let plain = "";
  for (let at = 0; at < text.length;) {
    const before = at === 0 ? " " : text[at - 1];
    let match = null, build = null;
    if ("`*_~[h\\".includes(text[at]) && !(text[at] === "_" && /\w/.test(before))) {
      for (const [pattern, make_node] of INLINE) {
        pattern.lastIndex = at;
        match = pattern.exec(text);
        if (match) { build = make_node; break; }
      }
    }
    if (!match) { plain += text[at++]; continue; }
    if (plain) out.push(plain);
    plain = "";
    at += match[0].length;
    out.push(build(match));
  }
  if (plain) out.push(plain);
  return out;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
const LIST = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

// One list: items of one kind at one depth; lines that are further in are the item's.
function list(lines, at) {
  const [, indent, mark] = LIST.exec(lines[at]);
  const node = make(/\d/.test(mark) ? "ol" : "ul");
  if (/\d/.test(mark) && parseInt(mark) !== 1) node.start = parseInt(mark);
  while (at < lines.length) {
    const item = LIST.exec(lines[at]);
    if (!item || item[1].length < indent.length || /\d/.test(item[2]) !== /\d/.test(mark)) break;
    const own = [item[3]];
    for (at++; at < lines.length; at++) {
      const next = LIST.exec(lines[at]);
      if (next && next[1].length <= indent.length + 1) break;
      if (!lines[at].trim() && !/^\s{2,}\S/.test(lines[at + 1] ?? "")) break;
      if (!next && lines[at].trim() && !/^\s/.test(lines[at]) && !lines[at - 1].trim()) break;
      own.push(lines[at].slice(Math.min(lines[at].search(/\S|$/), indent.length + 2)));
    }
    const blocks_of = blocks(own);
    const li = make("li");
    if (blocks_of.length && blocks_of[0].tagName === "P") li.append(...blocks_of[0].childNodes, ...blocks_of.slice(1));
    else li.append(...blocks_of);
    node.append(li);
    while (at + 1 < lines.length && !lines[at].trim() && LIST.test(lines[at + 1])) at++;
  }
  return [node, at];
}

function table(lines, at) {
  const head = make("tr", ...cells(lines[at]).map((cell) => make("th", ...inline(cell))));
  const body = make("tbody");
  for (at += 2; at < lines.length && lines[at].includes("|"); at++)
    body.append(make("tr", ...cells(lines[at]).map((cell) => make("td", ...inline(cell)))));
  return [make("div", make("table", make("thead", head), body)), at];
}

function blocks(lines) {
  const out = [];
  let words = [];
  const flush = () => {
    if (words.length) out.push(make("p", ...inline(words.join("\n"))));
    words = [];
  };
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)\s*(\S*)/.exec(line);
    const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (fence) {
      flush();
      let end = at + 1; // one that is not closed goes on to the end: it is still being written
      while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end++;
      out.push(make("pre", make("code", lines.slice(at + 1, end).join("\n"))));
      at = end + 1;
    } else if (heading) {
      flush();
      out.push(make(`h${Math.min(heading[1].length + 2, 6)}`, ...inline(heading[2])));
      at++;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      flush();
      out.push(make("hr"));
      at++;
    } else if (/^\s*>/.test(line)) {
      flush();
      let end = at;
      while (end < lines.length && /^\s*>/.test(lines[end])) end++;
      out.push(make("blockquote", ...blocks(lines.slice(at, end).map((l) => l.replace(/^\s*>\s?/, "")))));
      at = end;
    } else if (LIST.test(line)) {
      flush();
      const [node, end] = list(lines, at);
      out.push(node);
      at = end;
    } else if (line.includes("|") && /^[\s|:-]+$/.test(lines[at + 1] ?? "") && (lines[at + 1] ?? "").includes("-")) {
      flush();
      const [node, end] = table(lines, at);
      out.push(node);
      at = end;
    } else {
      if (line.trim()) words.push(line);
      else flush();
      at++;
    }
  }
  flush();
  return out;
}

export const markdown = (text) => blocks(text.replace(/\r\n?/g, "\n").split("\n"));
