// Clicks through the page in a headless Chromium, as a person would, and prints what it found as JSON.
// Usage: NODE_PATH=… node browser.mjs LINK SCREENSHOTS < hostile.json
import { createRequire } from "node:module";
import { readFileSync, mkdirSync } from "node:fs";
const require = createRequire(process.env.NODE_PATH + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [link, shots] = process.argv.slice(2);
const base = new URL(link).origin + "/ui";
const report = { stories: {}, console: [], requests: [], dialogs: 0, serious: {} };
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, acceptDownloads: true });
const page = await context.newPage();
page.setDefaultTimeout(15000);
page.on("console", (m) => {
  if (m.type() === "error" || m.type() === "warning") report.console.push(page.url() + ": " + m.text());
});
page.on("pageerror", (e) => report.console.push(page.url() + ": " + e.message));
page.on("request", (r) => { if (!r.url().startsWith(new URL(link).origin)) report.requests.push(r.url()); });
page.on("dialog", (d) => { report.dialogs++; d.dismiss(); });

function equal(got, want) {
  if (JSON.stringify(got) !== JSON.stringify(want)) {
    throw new Error(`got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

async function shot(name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: `${shots}/${name}.png` });
}

// audit runs the accessibility checker on the current page. The page's policy forbids eval, so axe runs in its own world.
async function audit(name) {
  const session = await context.newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId: contextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await session.send("Runtime.evaluate", { expression: axe, contextId });
  const { result } = await session.send("Runtime.evaluate", {
    expression: "axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations.filter(" +
      "v => ['serious', 'critical'].includes(v.impact)).map(v => v.id + ': ' + v.nodes[0].html)))",
    contextId, awaitPromise: true, returnByValue: true,
  });
  const found = JSON.parse(result.value);
  if (found.length) report.serious[name] = found;
  await session.detach();
}

async function story(name, run) {
  const start = Date.now();
  try {
    await run();
    report.stories[name] = "ok";
  } catch (e) {
    report.stories[name] = e.message.split("\n").slice(0, 6).join(" | ");
    await shot("failed-" + name.replaceAll(/\W+/g, "-"));
  }
  process.stderr.write(`${name}: ${report.stories[name].slice(0, 300)} (${Date.now() - start} ms)\n`);
}

// submit submits a program on the page and waits on its task's page for the end.
async function submit(program, { artifacts = "", status = "succeeded" } = {}) {
  await page.goto(base + "/new");
  await page.getByLabel("a Python program").check();
  await page.getByLabel("Task", { exact: true }).fill(program);
  if (artifacts) await page.getByLabel("Artifacts").fill(artifacts);
  await page.getByRole("button", { name: "Submit" }).click();
  await page.locator(".status." + status).waitFor();
  return page.url().split("/").pop().split("?")[0];
}

await story("login by link", async () => {
  await page.goto(link);
  await page.getByRole("heading", { name: "Tasks" }).waitFor();
  await page.goto(link); // it works only once
  await page.getByRole("alert").waitFor();
  await audit("login");
  await page.goto(base + "/tasks");
});

await story("submit, watch, artifact", async () => {
  await submit("import time, struct, zlib\nfor i in range(3):\n    print('line', i, flush=True)\n    time.sleep(0.3)\n" +
    "def part(t, d): return struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))\n" +
    "rows = b''.join(b'\\0' + bytes([40, 90, 160]) * 80 for _ in range(50))\n" +
    "open('chart.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + part(b'IHDR', struct.pack('>IIBBBBB', 80, 50, 8, 2, 0, 0, 0)) + " +
    "part(b'IDAT', zlib.compress(rows)) + part(b'IEND', b''))\nopen('notes.txt', 'w').write('one\\n')\n" +
    "result = {'id': 12345678901234567890}", { artifacts: "chart.png\nnotes.txt" });
  equal(await page.locator("pre.output").first().innerText(), "line 0\nline 1\nline 2\n");
  await page.getByText("12345678901234567890").waitFor(); // no rounding
  await page.getByAltText("chart.png").waitFor();
  equal(await page.getByAltText("chart.png").evaluate((i) => [i.naturalWidth, i.naturalHeight]), [80, 50]);
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "notes.txt" }).first().click();
  equal(readFileSync(await (await download).path(), "utf8"), "one\n");
  await audit("task");
  await shot("task");
});

await story("live list and filters", async () => {
  await page.goto(base + "/tasks");
  const other = await context.newPage();
  await other.goto(base + "/new");
  await other.getByLabel("a Python program").check();
  await other.getByLabel("Task", { exact: true }).fill("print('appears by itself')");
  await other.getByRole("button", { name: "Submit" }).click();
  await page.getByText("print('appears by itself')").waitFor(); // without a reload
  await other.close();
  await page.getByLabel("Search").fill("appears by");
  await page.waitForURL(/q=appears/);
  await page.waitForFunction(() => document.querySelectorAll("#list tbody tr").length === 1);
  await page.getByLabel("failed").check();
  await page.waitForURL(/status=failed/);
  await page.getByText("No tasks match").waitFor();
  await page.goto(base + "/tasks");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/tasks\/\w+/);
  await page.goto(base + "/tasks");
  await audit("tasks");
  await shot("tasks");
});

await story("rerun edited", async () => {
  await submit("print('first')");
  await page.getByRole("link", { name: "Rerun edited" }).click();
  equal(await page.getByLabel("Task", { exact: true }).inputValue(), "print('first')");
  await audit("new");
  await page.getByLabel("Task", { exact: true }).fill("print('second')");
  await page.getByRole("button", { name: "Submit" }).click();
  await page.locator("pre.output", { hasText: "second" }).waitFor();
});

await story("approve a tool call", async () => {
  await page.goto(base + "/new");
  await page.getByLabel("a Python program").check();
  await page.getByLabel("Task", { exact: true }).fill("from servers.shop import refund\nprint(refund('order-7'))");
  await page.getByRole("button", { name: "Submit" }).click();
  await page.waitForURL(/tasks\//);
  const task = page.url();
  await page.goto(base + "/inbox");
  await page.getByRole("heading", { name: "shop/refund" }).waitFor();
  await page.getByText("order-7").waitFor();
  await audit("inbox");
  await shot("inbox");
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await page.getByText("Approved.").waitFor();
  await page.goto(task);
  await page.locator(".status.succeeded").waitFor();
  equal(await page.locator("pre.output").first().innerText(), "refunded order-7\n");
  await page.getByRole("cell", { name: "shop/refund" }).waitFor();
});

await story("redrive a dead letter", async () => {
  await page.goto(base + "/dead");
  await page.getByRole("button", { name: "Redrive", exact: true }).first().waitFor();
  await audit("dead");
  await page.getByRole("button", { name: "Redrive", exact: true }).first().click();
  await page.getByText("The task is queued again.").waitFor();
  await page.getByText("No task has been dead-lettered.").waitFor();
});

await story("history, diff, restore", async () => {
  await submit("open('notes.txt', 'a').write('two\\n')");
  await page.goto(base + "/workspaces");
  await audit("workspaces");
  await page.getByRole("link", { name: "main", exact: true }).click();
  await audit("workspace");
  await page.getByRole("link", { name: "notes.txt" }).click();
  equal(await page.locator("pre").innerText(), "one\ntwo\n");
  await audit("file");
  await page.goto(base + "/workspaces/main/history");
  await audit("history");
  await page.getByRole("link", { name: /^1 path/ }).first().click();
  await page.locator(".added", { hasText: "+two" }).waitFor();
  await audit("diff");
  await shot("diff");
  await page.goto(base + "/workspaces/main/history");
  await page.getByRole("button", { name: /Restore generation/ }).first().click();
  await page.getByText(/is restored, as generation/).waitFor();
  await page.goto(base + "/workspaces/main/files/notes.txt");
  equal(await page.locator("pre").innerText(), "one\n");
});

await story("every other page", async () => {
  for (const name of ["sessions", "skills", "tools", "tools?q=add+two+numbers", "tools/calculator/add", "automation", "fleet"]) {
    const r = await page.goto(base + "/" + name);
    equal(r.status(), 200);
    if (name === "fleet") await page.locator("#plot canvas").waitFor();
    await audit(name);
  }
  await shot("fleet");
  await page.getByRole("button", { name: "Switch between light and dark" }).click();
  await audit("dark");
});

await story("hostile texts", async () => {
  const corpus = JSON.parse(readFileSync(0, "utf8"));
  for (const name of corpus.pages) {
    const r = await page.goto(base + "/" + name);
    equal([name, r.status()], [name, 200]);
  }
  equal(await page.evaluate(() => window.hacked), undefined);
});

await story("log out", async () => {
  await page.goto(base + "/tasks");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Token").waitFor();
  await page.goto(base + "/tasks");
  await page.waitForURL(/login\?next=/);
});

await browser.close();
console.log(JSON.stringify(report));
