// Markdown and code on the page: what answers look like, and that no text becomes markup. The modules
// are the page's own, called in the page.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, load, noProblems, openPage, scripted, skip } from "./browser_page.mjs";
import { random } from "./server.mjs";

const it = openPage();

// The HTML that a Markdown text becomes; copy buttons left out.
const render = (source) =>
  it.page.evaluate(async (text) => {
    const { MarkdownStream } = await import("/markdown.js");
    const root = document.createElement("div");
    new MarkdownStream(root).finish(text);
    for (const button of root.querySelectorAll(".copy-code")) button.remove();
    return root.innerHTML;
  }, source);

const A = ' target="_blank" rel="noopener noreferrer"';
const CASES = [
  ["# One #\n## Two\nText", '<h3 class="md-h1">One</h3><h4 class="md-h2">Two</h4><p>Text</p>'],
  ["Title\n===\nOther\n---", '<h3 class="md-h1">Title</h3><h4 class="md-h2">Other</h4>'],
  [
    "a *b* **c** ***d*** ~~e~~ `f*g*` h_i_j _k_",
    "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <del>e</del> <code>f*g*</code> h_i_j <em>k</em></p>",
  ],
  ["**bold *and* more** 2 * 3 * 4", "<p><strong>bold <em>and</em> more</strong> 2 * 3 * 4</p>"],
  ["``a ` b`` and `open", "<p><code>a ` b</code> and `open</p>"],
  ["one\ntwo  \nthree\\\nfour", "<p>one<br>two<br>three<br>four</p>"],
  ["\\*no\\* &amp; &lt;b&gt; &#65; &nope;", "<p>*no* &amp; &lt;b&gt; A &amp;nope;</p>"],
  ["- a\n- b\n  - c\n\n    d\n- e", "<ul><li>a</li><li>b<ul><li><p>c</p><p>d</p></li></ul></li><li>e</li></ul>"],
  ["- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
  ["1. a\n  - b\n2. c", "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>"],
  ["7) a\n8) b\n\ntext", '<ol start="7"><li>a</li><li>b</li></ol><p>text</p>'],
  [
    "- [x] done\n- [ ] open",
    '<ul><li class="task"><span class="tick" role="img" aria-label="done:">☑</span>done</li><li class="task"><span class="tick" role="img" aria-label="open:">☐</span>open</li></ul>',
  ],
  ["> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"],
  ["a\n\n***\n\n- - -", "<p>a</p><hr><hr>"],
  [
    "| a | b |\n|---|:-:|\n| `x` | y \\| z |\n| only |",
    '<div class="table" tabindex="0" role="region" aria-label="Table"><table><thead><tr><th scope="col">a</th><th class="align-center" scope="col">b</th></tr></thead><tbody><tr><td><code>x</code></td><td class="align-center">y | z</td></tr><tr><td>only</td><td class="align-center"></td></tr></tbody></table></div>',
  ],
  [
    '[a *b*](https://example.org/x_(y) "t")',
    `<p><a href="https://example.org/x_(y)" title="t"${A}>a <em>b</em></a></p>`,
  ],
  [
    "see https://example.org/a_b_c. <mailto:me@example.org>",
    `<p>see <a href="https://example.org/a_b_c"${A}>https://example.org/a_b_c</a>. <a href="mailto:me@example.org"${A}>mailto:me@example.org</a></p>`,
  ],
  ["![cat](https://example.org/c.png)", `<p><a href="https://example.org/c.png"${A}>Image: cat</a></p>`],
  [
    "[[a](https://example.org/)](https://example.com/)",
    `<p>[<a href="https://example.org/"${A}>a</a>](<a href="https://example.com/"${A}>https://example.com/</a>)</p>`,
  ],
  [
    "~~~js\nlet a = 1;\n~~~",
    '<figure class="code"><figcaption><span>JavaScript</span></figcaption><pre tabindex="0" aria-label="JavaScript code"><code><span class="tok-keyword">let</span> a = <span class="tok-number">1</span>;</code></pre></figure>',
  ],
  [
    "```\nnot closed *x*",
    '<figure class="code"><figcaption><span>text</span></figcaption><pre tabindex="0" aria-label="text code"><code>not closed *x*</code></pre></figure>',
  ],
];

test("Markdown becomes the elements that it means", { skip }, async () => {
  await load(it);
  for (const [source, html] of CASES) assert.equal(await render(source), html, JSON.stringify(source));
});

// What a formula became: per formula its TeX, whether it is on lines of its own, and its first MathML elements.
const formulas = (source) =>
  it.page.evaluate(async (text) => {
    const { MarkdownStream } = await import("/markdown.js");
    const { loadMath } = await import("/math.js");
    await loadMath();
    const root = document.createElement("div");
    new MarkdownStream(root).finish(text);
    const found = [...root.querySelectorAll(".math")].map((el) => [
      el.dataset.tex,
      "display" in el.dataset,
      el.querySelector("math")?.firstChild.firstChild.firstElementChild?.localName ?? el.innerHTML,
    ]);
    for (const el of root.querySelectorAll(".math")) el.replaceWith("#");
    return [found, root.textContent];
  }, source);

test("formulas become MathML, with their backslashes; amounts of money do not", { skip }, async () => {
  const { page } = it;
  const matrix = "\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}";
  for (const [source, found, rest] of [
    [
      "So $\\frac{a}{b}$ and \\(x^2\\).",
      [
        ["\\frac{a}{b}", false, "mfrac"],
        ["x^2", false, "msup"],
      ],
      "So # and #.",
    ],
    ["Thus\n$$\n" + matrix + "\n$$\nholds", [[matrix, true, "mo"]], "Thus#holds"],
    [
      "- \\[ a_1 \\]\n- $$a_2$$ too",
      [
        ["a_1", true, "msub"],
        ["a_2", true, "msub"],
      ],
      "## too",
    ],
    ["\\[\n= 1\n\n- 2\n\\]", [["= 1\n\n- 2", true, "mo"]], "#"],
    ["$5 and $6, $ 7 $, US$8 or 9$, `$x$`, \\$x\\$", [], "$5 and $6, $ 7 $, US$8 or 9$, $x$, $x$"],
    ["$\\notacommand{x}$", [["\\notacommand{x}", false, "<code>$\\notacommand{x}$</code>"]], "#"],
    [
      "$\\href{https://example.org}{x}$ $\\fcolorbox{red}{blue}{y}$",
      [
        ["\\href{https://example.org}{x}", false, "mstyle"],
        ["\\fcolorbox{red}{blue}{y}", false, "mpadded"],
      ],
      "# #",
    ],
    ["$$ never closed\n\n*a*", [], "$$ never closeda"],
  ])
    assert.deepEqual(await formulas(source), [found, rest], source);
  const html = await render("$\\includegraphics{https://example.org/x.png}$ $\\htmlStyle{color:red}{x}$");
  assert.doesNotMatch(html, /<img| (?:href|src|style)=/);
  await page.click("#new-chat");
  await scripted(page, [
    { content: "The roots of $ax^2+bx+c$ are\n\n$$x_{1,2} = \\frac{-b \\pm \\sqr" },
    { content: "t{b^2-4ac}}{2a}$$\n\nand \\(\\sum_{i=1}^n i = \\tfrac{n(n+1)}{2}\\)." },
  ]);
  await ask(page, "Show me formulas.");
  assert.equal(await page.locator(".message .math math").count(), 3);
  const box = await page.locator(".math[data-display] msqrt").boundingBox();
  assert.ok(box.height > 10 && box.width > 30, JSON.stringify(box));
  await it.shot("markdown-formulas");
});

test("a library is sent compressed, and its licence lies beside it", { skip }, async () => {
  const { server } = it,
    file = `${server.url}/vendor/katex.min.js`;
  const response = await fetch(file);
  assert.equal(response.headers.get("content-encoding"), "gzip");
  assert.ok((await response.text()).length > 200_000);
  assert.equal((await fetch(file, { headers: { "Accept-Encoding": "identity" } })).status, 406);
  assert.match(await (await fetch(`${server.url}/vendor/LICENSES.txt`)).text(), /KaTeX[^]*MIT License/);
});

const DOT =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

test("images come from the text or from this server, never from another", { skip }, async () => {
  const { page } = it;
  assert.equal(
    await render(`a ![*one* dot](${DOT} "t")`),
    `<p>a <img src="${DOT}" alt="one dot" title="t" loading="lazy"></p>`,
  );
  const { origin } = new URL(it.server.url);
  assert.equal(await render("![logo](/icon.svg)"), `<p><img src="${origin}/icon.svg" alt="logo" loading="lazy"></p>`);
  for (const other of [
    "https://example.org/a.png",
    "//example.org/a.png",
    "http://127.0.0.1:1/a.png",
    "blob:x",
    "file:///a.png",
  ])
    assert.doesNotMatch(await render(`![x](${other})`), /<img/, other);
  await page.click("#new-chat");
  await scripted(page, [{ content: `![dot](${DOT}) ![logo](/icon.svg)` }]);
  await ask(page, "Show me images.");
  const loaded = () => page.$$eval(".message img", (all) => all.map((i) => i.complete && i.naturalWidth > 0));
  await page.waitForFunction(() => [...document.querySelectorAll(".message img")].every((i) => i.complete));
  assert.deepEqual(await loaded(), [true, true]);
});

test("footnotes: numbers lead to the notes and back; without a note they stay text", { skip }, async () => {
  const { page } = it;
  assert.equal(await render("a[^1] [^2]"), "<p>a[^1] [^2]</p>");
  await page.click("#new-chat");
  await scripted(page, [
    { content: "Water boils[^1] at 100 °C[^note].\n\nMore.\n\nEnd.\n\n[^1]: At *sea" },
    { content: " level*.\n[^note]: Celsius.\n    And more." },
  ]);
  await ask(page, "With footnotes, please.");
  assert.deepEqual(await page.locator(".footnote").allInnerTexts(), [
    "1\n\nAt sea level.",
    "note\n\nCelsius.\nAnd more.",
  ]);
  await page.locator('[role="doc-noteref"][aria-label="Footnote note"]').click();
  assert.equal(await page.evaluate(() => document.activeElement.dataset.note), "note");
  assert.equal(await page.evaluate(() => document.activeElement.localName), "aside");
  await page.locator('[role="doc-backlink"]').last().click();
  assert.equal(await page.evaluate(() => document.activeElement.className), "note-ref");
  assert.equal(new URL(page.url()).hash, "");
  await it.shot("markdown-footnotes");
});

const HOSTILE = [
  "<script>window.hit = 1</script>",
  "<img src=x onerror='window.hit = 1'>",
  "<svg/onload=window.hit=1><iframe src=javascript:window.hit=1></iframe>",
  "[x](javascript:window.hit=1) [y](JaVaScRiPt:window.hit=1) [z](data:text/html,<script>window.hit=1</script>) [v](vbscript:x)",
  "[x](java\tscript:window.hit=1) [y](&#106;avascript:window.hit=1) [z](//slashes.example/) [w](\\\\evil)",
  '![x](javascript:window.hit=1) ![y](x" onerror="window.hit=1) <javascript:window.hit=1>',
  "[a](https://example.org/\" onclick=\"window.hit=1) [b](https://example.org 'x' onclick=window.hit=1)",
  "```<script>window.hit=1</script>\n</code></pre><script>window.hit=1</script>\n```",
  "| <b onmouseover=window.hit=1>a</b> | b |\n|--|--|\n| <a href=javascript:window.hit=1>x</a> | <style>*{display:none}</style> |",
  "`<img src=x onerror=window.hit=1>` **<u>x</u>** > <form action=https://evil.example/><input name=q></form>",
  "$\\href{javascript:window.hit=1}{x}$ $$\\htmlData{x=1}{y}$$ \\(\\url{javascript:window.hit=1}\\) $\\html@mathml{<b>}{<b>}$",
  "[^x]: <script>window.hit = 1</script>\n\n[^x] ![x](data:text/html,<script>window.hit=1</script>)",
];

test("hostile text stays text: in answers, in questions, in titles", { skip }, async () => {
  const { page } = it,
    text = HOSTILE.join("\n\n");
  await page.click("#new-chat");
  await scripted(
    page,
    [...text.matchAll(/[^]{1,7}/g)]
      .map(([content]) => ({ content }))
      .concat({
        reasoning_content: text,
        tool_calls: [{ index: 0, id: HOSTILE[1], function: { name: HOSTILE[0], arguments: HOSTILE[1] } }],
      }),
  );
  await ask(page, HOSTILE[1]);
  await page.locator("details.reasoning summary").click();
  await load(it);
  const found = await page.evaluate(() => ({
    hit: window.hit,
    tags: [...new Set([...document.querySelectorAll(".message *")].map((e) => e.localName))].sort(),
    handlers: [...document.querySelectorAll("*")].filter((e) =>
      [...e.attributes].some((a) => a.name.startsWith("on") || a.name === "srcdoc"),
    ).length,
    links: [...document.querySelectorAll(".message a:not(.note-ref, .note-back)")].map((a) => [
      a.protocol,
      a.rel,
      a.hostname,
    ]),
  }));
  assert.equal(found.hit, undefined);
  assert.equal(found.handlers, 0);
  for (const tag of ["script", "img", "iframe", "style", "form", "input", "u", "b"])
    assert.equal(found.tags.includes(tag), false, tag);
  for (const [protocol, rel, host] of found.links) {
    assert.equal(protocol, "https:");
    assert.equal(rel, "noopener noreferrer");
    assert.notEqual(host, "slashes.example");
  }
  assert.match(await page.locator(".message.assistant .text").innerText(), /<script>window\.hit = 1<\/script>/);
  assert.equal(await page.locator("#chat-title").textContent(), HOSTILE[1]);
  await it.shot("markdown-hostile");
});

test("however a text is cut into deltas, the result is the same", { skip }, async () => {
  const rng = random(11);
  const pieces = [
    ...CASES.map(([s]) => s),
    ...HOSTILE,
    "plain words",
    "",
    "    indented",
    "\t- tab",
    "***",
    "1.",
    "a\n-",
    "|a|\n|-",
    "``",
    "[",
    "](",
    "> ",
    "* * *x",
  ];
  const texts = Array.from({ length: 60 }, () =>
    Array.from({ length: rng.int(1, 9) }, () => pieces[rng.int(0, pieces.length - 1)]).join(
      ["\n", "\n\n", " ", "\r\n"][rng.int(0, 3)],
    ),
  );
  const cuts = texts.map((t) => Array.from({ length: 12 }, () => rng.int(0, t.length)).sort((a, b) => a - b));
  const wrong = await it.page.evaluate(
    async ([all, at]) => {
      const { MarkdownStream } = await import("/markdown.js");
      return all.filter((text, i) => {
        const whole = document.createElement("div"),
          root = document.createElement("div");
        new MarkdownStream(whole).finish(text);
        const stream = new MarkdownStream(root);
        for (const n of at[i]) stream.finish(text.slice(0, n));
        stream.finish(text);
        return root.innerHTML !== whole.innerHTML;
      });
    },
    [texts, cuts],
  );
  assert.deepEqual(wrong, []);
});

// Counts instead of times: elements that are made while a text grows.
test("a long answer is not drawn again from its beginning", { skip }, async () => {
  const { made, shown } = await it.page.evaluate(async () => {
    const { MarkdownStream } = await import("/markdown.js");
    const root = document.createElement("div"),
      stream = new MarkdownStream(root);
    const create = document.createElement;
    let n = 0,
      text = "";
    document.createElement = function (...args) {
      n++;
      return create.apply(this, args);
    };
    for (let i = 0; i < 400; i++) {
      text += `Paragraph **${i}** with *words*.\n\n`;
      stream.finish(text);
    }
    document.createElement = create;
    return { made: n, shown: root.querySelectorAll("*").length };
  });
  assert.equal(shown, 1200);
  assert.ok(made < 4 * shown, `${made} elements were made for ${shown}`);
});

test("absurd nesting and unclosed marks end, and soon", { skip }, async () => {
  const sources = [
    ">".repeat(5000),
    "[".repeat(20_000),
    "*a ".repeat(20_000),
    "*".repeat(50_000),
    "- ".repeat(4000),
    "`a``b```c````".repeat(3000),
    "[a](".repeat(9000),
    "![".repeat(9000) + "](x)".repeat(9000),
    "_a_ *b* ".repeat(5000),
    "|".repeat(9000) + "\n" + "|-".repeat(9000),
    "&#1114112;&#0;".repeat(2000),
    "\n".repeat(50_000) + "x",
    "- a\n\n\n".repeat(3000),
    "a\n".repeat(20_000),
    "<!--".repeat(9000),
  ];
  for (const source of sources) assert.ok((await render(source)).length > 0);
  const code = ["/*", "`", '"', "<!--", "'''", "#", "@a", "$(", "0x", "\\"].map((s) => s.repeat(5000));
  for (const lang of ["js", "c", "html", "python", "css", "yaml", "sh", "rust", "sql", "toml", "make", "json", "diff"])
    for (const text of code) assert.ok((await render(`~~~${lang}\n${text}\n~~~`)).length > 0);
});

test("code is coloured, labelled and copied", { skip }, async () => {
  const { page } = it;
  const python = '# greet\ndef greet(name: str) -> None:\n    """Say <hi>."""\n    print(f"Hello {name}", 0x1F)\n';
  const answer = `Some code:\n\n\`\`\`python\n${python}\`\`\`\n\nA table:\n\n| Name | Size |\n|:--|--:|\n| one | 1 |\n| two | 22 |\n\n### List\n\n1. First **bold**\n   - nested \`code\`\n   - [x] done\n2. Second, see https://example.org\n\n> A quote.\n\n\`\`\`rust\nfn main() { println!("{}", 1u32); }\n\`\`\``;
  await page.click("#new-chat");
  await scripted(page, [{ content: answer }]);
  await ask(page, "Show me everything");
  const block = page.locator("figure.code").first();
  const tokens = await block
    .locator("code span")
    .evaluateAll((all) => all.map((s) => [s.className.slice(4), s.textContent]));
  assert.deepEqual(tokens, [
    ["comment", "# greet"],
    ["keyword", "def"],
    ["function", "greet"],
    ["literal", "None"],
    ["string", '"""Say <hi>."""'],
    ["function", "print"],
    ["string", '"Hello {name}"'],
    ["number", "0x1F"],
  ]);
  await block.getByRole("button", { name: "Copy Python" }).click();
  await block.getByText("Copied").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), python.trimEnd());
  await it.shot("markdown");
  await page.emulateMedia({ colorScheme: "dark" });
  await it.shot("markdown-dark");
  await page.setViewportSize({ width: 360, height: 640 });
  await it.shot("markdown-phone");
});

noProblems(it);
