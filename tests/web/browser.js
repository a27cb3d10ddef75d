// browser.js - a headless Chromium, driven by its DevTools protocol through two pipes: nothing to install but itself.
const { spawn } = require('child_process')
const fs = require('fs')
const os = require('os')
const path = require('path')

// open(chromium, flags): {page(file, options), close()}. A page is one of a file on this machine or of a server, of so
// many pixels, in light or dark; its functions are those below.
exports.open = async (chromium, ...flags) => {
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'attn-browser-'))
    const chrome = spawn(chromium, ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
        '--no-first-run', '--hide-scrollbars', '--force-color-profile=srgb', '--remote-debugging-pipe',
        '--user-data-dir=' + profile,
        ...flags, 'about:blank'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] })
    const [, , , to, from] = chrome.stdio
    const waiting = new Map(), listeners = []
    let last = 0, received = []
    setTimeout(() => { // no test waits for ever
        console.log('FAILED  the browser: no end after five minutes')
        process.exit(1)
    }, 300000).unref()
    const stop = reason => waiting.forEach(call => call.reject(new Error(reason)))
    chrome.on('error', error => stop(String(error)))
    chrome.on('exit', () => stop(chromium + ' has ended'))
    from.on('data', bytes => {
        received.push(bytes)
        if (!bytes.includes(0)) return
        const messages = Buffer.concat(received).toString().split('\0')
        received = [Buffer.from(messages.pop())]
        for (const message of messages.map(text => JSON.parse(text))) {
            const call = waiting.get(message.id)
            waiting.delete(message.id)
            if (!call) listeners.forEach(listener => listener(message))
            else if (message.error) call.reject(new Error(call.method + ': ' + message.error.message))
            else call.resolve(message.result)
        }
    })
    const send = (method, params = {}, sessionId) => new Promise((resolve, reject) => {
        waiting.set(++last, { method, resolve, reject })
        to.write(JSON.stringify({ id: last, method, params, sessionId }) + '\0')
    })
    return {
        page: (file, options = {}) => open_page(send, listeners, file, options),
        close: async () => {
            const ended = new Promise(resolve => chrome.on('exit', resolve))
            send('Browser.close').catch(() => {})
            await ended
            fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
        }
    }
}

async function open_page(send, listeners, file, { width = 1000, height = 800, dark = false,
    touch = false, first = '' }) {
    const { targetId } = await send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true })
    const call = (method, params) => send(method, params, sessionId)
    const faults = [], asked = []
    let loaded
    const ready = new Promise(resolve => { loaded = resolve })
    listeners.push(({ method, params, sessionId: of }) => {
        if (of !== sessionId) return
        if (method === 'Page.loadEventFired') loaded()
        if (method === 'Network.requestWillBeSent') asked.push(params.request.url)
        if (method === 'Runtime.exceptionThrown')
            faults.push(params.exceptionDetails.exception?.description ?? 'a fault')
        if (method === 'Log.entryAdded') faults.push(params.entry.text)
    })
    for (const domain of ['Page', 'Runtime', 'Network', 'Log']) await call(domain + '.enable')
    await call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: touch })
    if (touch) await call('Emulation.setTouchEmulationEnabled', { enabled: true })
    await call('Emulation.setEmulatedMedia', {
        features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]
    })
    await call('Page.addScriptToEvaluateOnNewDocument', { source: first }) // runs before the page's own
    await call('Page.navigate', { url: /^http:/.test(file) ? file : 'file://' + path.resolve(file) })
    await ready
    return {
        faults,     // errors of the page's program, and whatever the browser's log says
        asked,      // what it loaded: itself, and nothing else
        run: async expression => { // the value of an expression, awaited where it is a promise
            const { result, exceptionDetails } =
                await call('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true })
            if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
            return result.value
        },
        told: async controls => { // the role and the name that a screen reader is told of each
            const { root } = await call('DOM.getDocument')
            const { nodeIds } = await call('DOM.querySelectorAll', { nodeId: root.nodeId, selector: controls })
            return Promise.all(nodeIds.map(async nodeId => {
                const { nodes } = await call('Accessibility.getPartialAXTree', { nodeId, fetchRelatives: false })
                return { role: nodes[0].role.value, name: nodes[0].name.value }
            }))
        },
        point: (x, y) => call('Input.dispatchMouseEvent', { type: 'mouseMoved', x, y }),
        click: async (x, y) => {
            for (const type of ['mousePressed', 'mouseReleased'])
                await call('Input.dispatchMouseEvent', { type, x, y, button: 'left', clickCount: 1 })
        },
        drag: async (...places) => { // a finger goes down at the first place, [x, y], and up at the last
            const event = (type, touchPoints) => call('Input.dispatchTouchEvent', { type, touchPoints })
            for (const [k, [x, y]] of places.entries()) await event(k ? 'touchMove' : 'touchStart', [{ x, y }])
            await event('touchEnd', [])
        },
        wheel: (x, y, deltaY) => call('Input.dispatchMouseEvent', { type: 'mouseWheel', x, y, deltaX: 0, deltaY }),
        press: async key => {
            const text = key === 'Enter' ? '\r' : key.length === 1 ? key : undefined
            await call('Input.dispatchKeyEvent', { type: 'keyDown', key, text })
            await call('Input.dispatchKeyEvent', { type: 'keyUp', key })
        },
        picture: async (to, from, until) => { // the page as a PNG, or from one element to another below it
            const { cssContentSize: { width, height } } = await call('Page.getLayoutMetrics')
            const clip = { x: 0, y: 0, width, height, scale: 1 }
            if (from) [clip.y, clip.height] = (await call('Runtime.evaluate', {
                expression: `(([a, b]) => [a.top + scrollY, b.bottom - a.top])(['${from}', '${until}']
                    .map(element => document.querySelector(element).getBoundingClientRect()))`, returnByValue: true
            })).result.value
            const { data } = await call('Page.captureScreenshot', { format: 'png', clip, captureBeyondViewport: true })
            fs.writeFileSync(to, Buffer.from(data, 'base64'))
        },
        close: () => send('Target.closeTarget', { targetId })
    }
}
