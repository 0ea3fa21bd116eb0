#!/usr/bin/env python3
"""The web page of kvtile serve in headless Chromium, wide and narrow, by keyboard: an answer comes, is stopped and asked for again, the tiles fill,
and nothing is loaded from elsewhere. Needs the playwright package and a Chromium; ends "ok: ..." or with what is wrong."""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    print("serve_page: skipped: the playwright package is not there")
    sys.exit(0)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if not CHROMIUM:
    print("serve_page: skipped: there is no Chromium")
    sys.exit(0)

TEXT = "The old house at the end of the lane had stood empty for as long as anyone could remember. " * 8
MARKDOWN = "# Head\n\n- one **bold**\n- two `code`\n\n```\nx < 1 && y\n```\n\n<img src=x onerror=alert(1)> [bad](javascript:alert(1)) [good](https://example.org)\n\n| a | b |\n|---|---|\n| 1 | 2 |"


def colours(page):
    """How many pixels of the tiles have the colours of sink, body and tail."""
    return page.evaluate("""() => {
        const c = document.getElementById('tiles'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const probe = document.createElement('canvas').getContext('2d', {willReadFrequently: true}), out = {};
        for (const name of ['sink', 'body', 'tail']) {
            probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
            probe.fillRect(0, 0, 1, 1);
            const p = probe.getImageData(0, 0, 1, 1).data;
            out[name] = 0;
            for (let i = 0; i < d.length; i += 4) out[name] += d[i] === p[0] && d[i + 1] === p[1] && d[i + 2] === p[2];
        }
        return out; }""")


def check(page, url, narrow):
    page.goto(url)
    expect(page.locator("#model")).to_contain_text("kvtile tiny llama")
    page.evaluate("localStorage.setItem('kvtile', JSON.stringify({max_tokens: '3000', temperature: '0.9', reuse: true}))")
    page.reload()
    expect(page.locator("#say")).to_be_focused()
    page.keyboard.type(TEXT[:40])
    page.evaluate("text => { document.getElementById('say').value = text; }", TEXT)
    page.keyboard.press("Enter")
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator(".message .text")).to_have_text(re.compile(".{900}", re.S), timeout=60000)
    page.keyboard.press("Escape")
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator(".under")).to_contain_text("stopped")
    page.wait_for_timeout(600)
    page.evaluate("localStorage.setItem('kvtile', JSON.stringify({max_tokens: '5', reuse: true}))")
    page.locator("#open-settings").click()
    page.locator("[name=max_tokens]").fill("5")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".under")).to_contain_text("5 tokens")
    kept = page.locator(".under").inner_text()
    assert " 0 of" not in kept, kept
    if narrow:
        expect(page.locator("#cache")).to_be_hidden()
        page.locator(".tabs [data-view=cache]").click()
    expect(page.locator("#tile-words")).to_contain_text("of f16")
    seen = colours(page)
    assert seen["sink"] > 50 and seen["body"] > 50, seen
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page is wider than its window"
    shown = page.evaluate("""async text => { const { markdown } = await import('/page/markdown.js');
        const div = document.createElement('div'); div.append(...markdown(text)); return div.innerHTML; }""", MARKDOWN)
    for must in ["<h3>Head</h3>", "<li>one <strong>bold</strong></li>", "<code>code</code>", "x &lt; 1 &amp;&amp; y", "<td>2</td>",
                 "&lt;img src=x", 'href="https://example.org"']:
        assert must in shown, (must, shown)
    assert "<img" not in shown and 'href="javascript' not in shown, shown


server = subprocess.Popen([os.path.join(ROOT, "build/release/kvtile"), "serve", os.path.join(ROOT, "models/plain.gguf"), "--port", "0", "-q",
                           "--kv", "kivi4g32", "--sink", "128"], stdout=subprocess.PIPE, text=True)
address = server.stdout.readline().strip()
try:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, height, scheme in [(1280, 800, "light"), (390, 780, "dark")]:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab, said = context.new_page(), []
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.on("request", lambda request: request.url.startswith(address) or said.append(request.url))
            check(tab, address, width < 900)
            assert not said, said
            context.close()
        browser.close()
finally:
    server.terminate()
assert server.wait(30) == 0
print("ok: wide and narrow, light and dark: an answer stopped and asked for again from what was kept, tiles, Markdown, no other address")
