// threads.js - examples/web/threads.html in a browser, which shares memory with its workers or may not: node threads.js
// CHROMIUM THREADS.WASM.
const fs = require('fs')
const http = require('http')
const path = require('path')
const { open } = require('./browser.js')
const { check, sum } = require('./check.js')
const [chromium, wasm] = process.argv.slice(2)

const types = { html: 'text/html', js: 'text/javascript', wasm: 'application/wasm' }
const isolating = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' }
const serve = headers => new Promise(done => {
    const server = http.createServer((request, response) => {
        const name = path.basename(request.url), known = /^threads\.(html|js|wasm)$/.exec(name)
        if (!known) return response.writeHead(404).end()
        response.writeHead(200, { 'Content-Type': types[known[1]], ...headers })
        response.end(fs.readFileSync(known[1] === 'wasm' ? wasm : path.join(__dirname, '../../examples/web', name)))
    })
    server.listen(0, 'localhost', () => done(server))
})

async function told(browser, headers) { // what the page says
    const server = await serve(headers)
    const page = await browser.page(`http://localhost:${server.address().port}/threads.html`)
    await page.run(`new Promise(done => { const look = () =>
        'ready' in document.documentElement.dataset ? done() : setTimeout(look, 50); look() })`)
    const lines = await page.run("[...document.querySelectorAll('li')].map(li => li.textContent)")
    await page.close()
    server.closeAllConnections()
    server.close()
    return lines
}

async function all() {
    const browser = await open(chromium)
    const shared = await told(browser, isolating), alone = await told(browser, {})
    check('1, 2 and 4 workers share a memory, ' + shared[2], shared.length === 4 &&
        [1, 2, 4].every((count, k) => shared[k].startsWith(`workers: ${count};`)), shared.join('\n'))
    check('they have the same bits', /^the same bits: [0-9a-f]+$/.test(shared[3]), shared[3])
    check('a page that may not share memory computes alone, ' + alone[0], alone.length === 2 &&
        alone[0].startsWith('the page alone'), alone.join('\n'))
    check('and has these bits, too', alone[1] === shared[3], alone[1])
    await browser.close()
    sum()
}
all().catch(error => { check('the browser: ' + error.message, false, error.stack); sum() })
