// chapter.js - uses build/attn.html as a reader would: node chapter.js CHROMIUM PAGE DIRECTORY. A line for each thing
// looked at; a picture of the page goes into the directory.
const fs = require('fs')
const os = require('os')
const path = require('path')
const { open } = require('./browser.js')
const { check, sum } = require('./check.js')
const [chromium, file, directory] = process.argv.slice(2)
const expected = fs.readFileSync(path.join(__dirname, '../golden.txt'), 'utf8').split('\n')[0]

const until = (page, condition) => page.run(`new Promise((done, fail) => {
    const late = setTimeout(() => fail(new Error('in vain: ' + ${JSON.stringify(condition)})), 120000)
    const look = () => ${condition} ? (clearTimeout(late), done()) : setTimeout(look, 50)
    look() })`)
const set = (page, section, n, value) => page.run(`(control => {
    if (control.type === 'checkbox') control.checked = ${value}
    else control.value = ${value}
    control.dispatchEvent(new Event('input', { bubbles: true })) })(
    document.querySelectorAll('[data-draw=${section}] :is(input, select)')[${n}])`)
const figure = (page, section) => page.run(`document.querySelector('[data-draw=${section}] figure').innerHTML`)
// What the cells of a picture tell, as [panel][row][column]; null: it is masked.
async function cells(page, section, picture, rows, columns) {
    const told = await page.run(`[...document.querySelectorAll('[data-draw=${section}] figure svg')[${picture}]
        .querySelectorAll('title')].map(title => title.textContent)`)
    const panels = []
    told.forEach((text, k) => {
        const [, i, j, value] = text.match(/^(\d+), (\d+): (\S+)$/)
        if (+i !== (k / columns | 0) % rows || +j !== k % columns) throw new Error('cell ' + k + ' is ' + text)
        const panel = panels[k / columns / rows | 0] ??= []
        ;(panel[i] ??= [])[j] = value === 'masked' ? null : +value
    })
    return panels
}
const add_up = rows => rows.every(row => Math.abs(row.reduce((a, b) => a + b, 0) - 1) < 0.01)
const largest = rows => rows.map(row => Math.max(...row))

async function sliders(page) {
    await set(page, 'masks', 0, false) // a causal mask has nothing to the right that a window could leave out
    for (const section of ['pooling', 'steps', 'softmax', 'scores', 'masks', 'sequences']) {
        const controls = await page.run(`[...document.querySelectorAll('[data-draw=${section}] :is(input, select)')]
            .map(c => ({ type: c.type, value: c.value, least: c.min, checked: c.checked }))`)
        const same = []
        for (const [n, { type, value, least, checked }] of controls.entries()) {
            const before = await figure(page, section)
            await set(page, section, n, type === 'checkbox' ? !checked : type === 'range' ? least : 2)
            if (await figure(page, section) === before) same.push(n)
            await set(page, section, n, type === 'checkbox' ? checked : value)
            if (await figure(page, section) !== before) same.push(n + ' and back')
        }
        check(`${section}: each of ${controls.length} controls changes the picture`,
            controls.length > 1 && !same.length, same.join(', '))
    }
}

async function names(page) { // by the accessibility tree
    const labels = await page.run(`[...document.querySelectorAll('form label')].map(label =>
        label.firstChild.textContent.trim())`)
    const controls = await page.told('form :is(input, select)')
    check(`each of ${labels.length} controls is called what stands beside it`,
        labels.length > 10 && String(controls.map(({ name }) => name)) === String(labels),
        controls.map(({ role, name }) => `${role} "${name}"`).join(', '))
    const values = await page.run(`[...document.querySelectorAll('form output')].map(output =>
        [output.parentNode.querySelector('input').ariaValueText, output.value])`)
    check('a slider tells the value that is seen', values.length > 10 && values.every(([told, seen]) => told === seen),
        values.join('; '))
}

async function steps(page) { // against the same in float64; what a number under the pointer tells
    const keys = [[1, 0], [0, 1], [1, 1], [-1, .5]], values = [10, 20, 30, 40]
    for (const q of [[1.2, .4], [-3, 3], [0, 0]]) {
        for (const n of [0, 1]) await set(page, 'steps', n, q[n])
        const seen = await page.run(`[...document.querySelectorAll('[data-draw=steps] td')].map(td => td.textContent)`)
        const dots = keys.map(k => k[0] * q[0] + k[1] * q[1]), powers = dots.map(s => Math.exp(s / Math.SQRT2))
        const weights = powers.map(p => p / powers.reduce((a, b) => a + b))
        const result = weights.reduce((sum, w, j) => sum + w * values[j], 0)
        const want = keys.flatMap((_, j) => [dots[j], dots[j] / Math.SQRT2, weights[j], values[j],
            weights[j] * values[j]]).concat(1, 0, result)
        check(`a query of ${q}: each step`, seen.length === want.length &&
            want.every((x, k) => Math.abs(x - seen[k]) < .0051), `${seen} instead of ${want}`)
    }
    await set(page, 'steps', 0, 1.2)
    await set(page, 'steps', 1, .4)
    const [x, y] = await page.run(`(td => (td.scrollIntoView(), (({ x, y }) => [x + 9, y + 9])(
        td.getBoundingClientRect())))(document.querySelector('[data-draw=steps] tr:nth-child(4) td'))`)
    await page.point(x, y)
    const told = await page.run("document.querySelector('[data-draw=steps] .told').textContent")
    check('a number under the pointer tells how it was computed',
        told === 'q\u00b7k = 1.2 \u00d7 1 + 0.4 \u00d7 1 = 1.60', told)
}

async function phone(browser) { // 390 pixels wide: words stay as large, panels stand below each other
    const page = await browser.page(file, { width: 390, height: 844, touch: true })
    await until(page, "'ready' in document.documentElement.dataset")
    const wide = await page.run('document.documentElement.scrollWidth')
    check('on a phone nothing is wider than it', wide === 390, wide)
    const sizes = await page.run(`[...document.querySelectorAll('figure svg')].filter(svg => svg.querySelector('text'))
        .map(svg => 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)`)
    check('words of the pictures have 12 pixels', sizes.length === 6 && sizes.every(size => size > 11.9), sizes)
    const frames = await page.run(`[...document.querySelectorAll('[data-draw=scores] rect[fill=none][stroke]')]
        .map(frame => frame.getBoundingClientRect().left)`)
    check('panels stand below each other', frames.length >= 3 && frames.slice(0, 3).every(x => x === frames[0]), frames)
    const at = await page.run(`(cell => (cell.scrollIntoView(), (({ x, y }) => [x + 5, y + 5])(
        cell.getBoundingClientRect())))(document.querySelector('[data-draw=softmax] g > title + rect'))`)
    await page.drag(at)
    const told = await page.run("document.querySelector('[data-draw=softmax] .told').textContent")
    check('a cell under a finger is told', /^0, 0: 0\.\d+$/.test(told), told)
    check('nothing goes wrong there', page.faults.length === 0, page.faults[0])
    await page.picture(path.join(directory, 'phone.png'))
    await page.close()
}

async function softmax(page) {
    await set(page, 'softmax', 0, 7)
    await set(page, 'softmax', 1, 0)
    let [first, second] = await cells(page, 'softmax', 0, 4, 10)
    check('valid lengths: no weight beyond, all of it before', add_up(first) &&
        first.every(row => row.every((w, j) => j < 7 ? w > 0 : w === null)), first.join('\n'))
    const hatched = await page.run(`document.querySelectorAll(
        '[data-draw=softmax] figure g > rect[fill="url(#attn-masked)"]').length`)
    check('masked cells are hatched', hatched === 4 * 3 + 4 * 10, hatched)
    check('a length of 0: no weight at all', second.flat().every(w => w === null), second.join('\n'))
    await set(page, 'softmax', 2, -4)
    ;[first] = await cells(page, 'softmax', 0, 4, 10)
    check('cold: nearly all weight on one key', largest(first).every(w => w > 0.7), largest(first))
    await set(page, 'softmax', 2, 4)
    ;[first] = await cells(page, 'softmax', 0, 4, 10)
    check('hot: nearly the same weight on all', largest(first).every(w => w < 0.2), largest(first))
}

async function scores(page) {
    const worth = []
    for (const size of [1, 128]) {
        await set(page, 'scores', 0, size)
        const panels = await cells(page, 'scores', 0, 6, 10)
        check(`vectors of ${size}: three kinds of weights, which add up to 1`,
            panels.length === 3 && panels.every(add_up))
        worth.push(panels.map(rows => largest(rows).reduce((a, b) => a + b, 0) / 6))
        if (size > 1) continue
        check('of size 1 scaled and not are the same', String(panels[0]) === String(panels[1]))
    }
    check('large vectors: the dot product falls on one key, the scaled one does not', worth[1][0] > 0.8 &&
        worth[1][1] < 0.5, worth.join('\n'))
}

async function masks(page) {
    const settings = [[true, 5, 24, 20], [false, 24, 3, 24], [false, 0, 0, 24], [true, 24, 24, 0]]
    for (const [causal, left, right, length] of settings) {
        const may = (i, j) => +(j < length && (!causal || j <= i) && (left === 24 || j >= i - left) &&
            (right === 24 || j <= i + right))
        for (const [n, value] of [causal, left, right, length].entries()) await set(page, 'masks', n, value)
        const [mask] = await cells(page, 'masks', 0, 24, 24), [weights] = await cells(page, 'masks', 1, 24, 24)
        const name = `${causal ? 'causal, ' : ''}${left} to the left, ${right} to the right, length ${length}`
        check(name + ': the mask', mask.length === 24 && mask.every((row, i) =>
            row.every((m, j) => m === (may(i, j) ? 1 : null))))
        check(name + ': the weights', weights.every((row, i) => {
            const any = row.some((_, j) => may(i, j))
            return row.every((w, j) => may(i, j) ? w !== null : w === null) && (!any || add_up([row]))
        }))
    }
}

async function sequences(page) {
    for (const [first, second, left, padding] of [[8, 6, 24, 5], [0, 12, 2, 24], [5, 0, 0, 0]]) {
        const starts = [0, first, first + second, 24], of = i => starts.findLastIndex(start => i >= start)
        const may = [(i, j) => of(i) === of(j) && j <= i && j >= i - left,
            (i, j) => j <= i && j >= i - left, (i, j) => j >= padding && j <= i && j >= i - left,
            (i, j) => i >= first && j < first]
        for (const [n, value] of [first, second, left, padding].entries()) await set(page, 'sequences', n, value)
        const panels = await cells(page, 'sequences', 0, 24, 24)
        check(`lengths ${first}, ${second}, window ${left}, padding ${padding}: who attends to whom`,
            panels.length === 4 && panels.every((rows, p) =>
                rows.every((row, i) => row.every((m, j) => m === (may[p](i, j) ? 1 : null)))))
    }
}

async function program(page) {
    await page.run("document.querySelector('#golden button').click()")
    await until(page, "document.querySelectorAll('#golden dd').length === 2")
    const said = await page.run("[...document.querySelectorAll('#golden dd')].map(e => e.textContent)")
    check('the golden hash, scalar and SIMD', said.every(text => text.startsWith(expected + ' ')), said.join('\n'))
    check('is the one that the page expects', said.every(text => text.endsWith('equal')) &&
        await page.run("document.getElementById('expected').textContent") === expected)
    await page.run("document.querySelector('#speed button').click()")
    await until(page, "document.querySelectorAll('#speed dd').length === 3")
    const lines = await page.run("[...document.querySelectorAll('#speed dd')].map(e => e.textContent)")
    const [scalar, simd] = lines.map(parseFloat)
    check(`a forward call: ${scalar} ms scalar, ${simd} ms SIMD`, scalar > simd && simd > 0, lines.join('\n'))
}

// Which kernels run: relaxed where this machine has a fused multiply-add; today's where the browser refuses that
// program, or rounds twice.
const told = page => page.run("document.getElementById('kernels').textContent")
async function kernels(browser) {
    const fused = os.arch() === 'arm64' || /^flags.* fma /m.test(fs.readFileSync('/proc/cpuinfo', 'utf8'))
    const page = await browser.page(file)
    await until(page, "'ready' in document.documentElement.dataset")
    check('it tells which kernels run', (fused ? /relaxed SIMD/ : /in doubles/).test(await told(page)),
        await told(page))
    await page.close()
    const refused = await browser.page(file, { first: 'WebAssembly.validate = () => false' })
    await until(refused, "'ready' in document.documentElement.dataset")
    check('a browser without relaxed SIMD gets the other program', /in doubles/.test(await told(refused)),
        await told(refused))
    check('nothing goes wrong there, either', refused.faults.length === 0, refused.faults[0])
    await refused.close()
    if (os.arch() !== 'x64') return
    const older = await open(chromium, '--js-flags=--no-enable-fma3'), twice = await older.page(file)
    await until(twice, "'ready' in document.documentElement.dataset")
    check('a processor that rounds twice does not run the relaxed kernels', /in doubles/.test(await told(twice)),
        await told(twice))
    await older.close()
}

async function all() {
    const browser = await open(chromium)
    const page = await browser.page(file, { width: 960 })
    await until(page, "'ready' in document.documentElement.dataset")
    check('it loads nothing but itself', page.asked.length === 1, page.asked.join(' '))
    await names(page)
    await sliders(page)
    await steps(page)
    await softmax(page)
    await scores(page)
    await masks(page)
    await sequences(page)
    await program(page)
    check('nothing has gone wrong on the way', page.faults.length === 0, page.faults[0])
    for (const [n, value] of [true, 8, 24, 20].entries()) await set(page, 'masks', n, value)
    await set(page, 'scores', 0, 64)
    await page.picture(path.join(directory, 'page.png'), "[data-draw=scores]", "[data-draw=masks]")
    await page.run("document.getElementById('theme').click()")
    await page.picture(path.join(directory, 'dark.png'))
    await phone(browser)
    await kernels(browser)
    await browser.close()
    sum()
}
all().catch(error => { check('the browser: ' + error.message, false, error.stack); sum() })
