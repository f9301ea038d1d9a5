// Looks at the built site as a reader does: screenshots at laptop and phone width, light and dark, and three checks of every page:
// nothing is wider than the screen, wide tables and code scroll in their own box, and search finds something without a server.
//
//     npm install playwright-core && node docs/screens/look.mjs site screenshots     (needs Chromium at /usr/bin/chromium)
import { readdirSync, mkdirSync } from "node:fs"
import { resolve } from "node:path"
import { chromium } from "playwright-core"

const [site, output] = process.argv.slice(2).map((path) => resolve(path))
const SCREENS = { laptop: { width: 1366, height: 768 }, phone: { width: 390, height: 844 }, narrow: { width: 360, height: 740 } }
const PICTURES = ["index.html", "tutorials/separate-signals.html", "tutorials/digits.html", "api.html", "speed.html", "how-to/migrate.html"]
const pages = readdirSync(site, { recursive: true }).filter((name) => name.endsWith(".html"))
const flags = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync"
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags.split(" ").map((flag) => `--${flag}`) })
mkdirSync(output, { recursive: true })

// Elements that stick out of the screen without a box of their own that scrolls.
const sticksOut = () => {
  const scrolls = (element) => element && (/auto|scroll/.test(getComputedStyle(element).overflowX) || scrolls(element.parentElement))
  const shown = [...document.querySelectorAll("article *")].filter((element) => element.getClientRects().length)
  const wide = shown.filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !scrolls(element))
  const page = document.documentElement.scrollWidth > innerWidth + 1 ? ["the page itself"] : []
  return [...page, ...wide.slice(0, 3).map((element) => `${element.tagName} ${element.textContent.slice(0, 50)}`)]
}
// Code that has to be scrolled.
const cutOff = () => [...document.querySelectorAll("article .highlight pre > code")]
  .filter((code) => code.scrollWidth > code.clientWidth + 1)
  .map((code) => code.textContent.split("\n").reduce((a, b) => (a.length > b.length ? a : b)).slice(0, 130))

let found = 0
for (const [screen, viewport] of Object.entries(SCREENS)) {
  const tab = await browser.newPage({ viewport })
  for (const name of pages) {
    await tab.goto(`file://${site}/${name}`)
    const problems = await tab.evaluate(sticksOut)
    if (screen === "laptop") problems.push(...(await tab.evaluate(cutOff)).map((line) => `code: ${line}`))
    for (const problem of problems) console.log(`${screen} ${name}: ${problem}`)
    found += problems.length
  }
  await tab.close()
}
for (const colorScheme of ["light", "dark"])
  for (const screen of ["laptop", "phone"])
    for (const name of PICTURES) {
      const tab = await browser.newPage({ viewport: SCREENS[screen], colorScheme })
      await tab.goto(`file://${site}/${name}`)
      await tab.waitForTimeout(400)
      await tab.screenshot({ path: `${output}/${name.replaceAll("/", "-")}-${screen}-${colorScheme}.png`, fullPage: name !== "api.html" })
      await tab.close()
    }
const tab = await browser.newPage({ viewport: SCREENS.laptop })
await tab.goto(`file://${site}/index.html`)
await tab.click("input[name=query]")
await tab.keyboard.type("safeguard", { delay: 30 })
await tab.waitForTimeout(2000)
const results = await tab.locator(".md-search-result__item").count()
console.log(`search from a file finds ${results} pages`)
await browser.close()
process.exit(found || !results ? 1 : 0)
