// heatmap.js - looks at the pages of attn_heatmap_html as a reader would: node heatmap.js CHROMIUM DIRECTORY, where
// pages.c has written them. A line for each thing looked at; pictures of the pages go into the directory, too.
const fs = require('fs')
const path = require('path')
const { open } = require('./browser.js')
const { check, sum } = require('./check.js')
const [chromium, directory] = process.argv.slice(2)
const ROWS = 6, COLUMNS = 8
const rows = ['<img src=x onerror=alert(1)>', '</script>', '"quoted" & \'quoted\'', '\u00e9t\u00e9', '', '  two blanks']
const columns = ['</ul><b>', 'a', 'b', 'a long label, which stands slanted', '\u4e2d\u6587', 'd', 'e', 'f']
const code = i => 37 * i % 101 // what pages.c makes of the index of a cell
const told = (panel, i, j, value) => [`Batch ${panel / 3 | 0}, head ${panel % 3}`, `queries: ${rows[i]}`,
    `keys: ${columns[j]}`, `value: ${value ?? (code((panel * ROWS + i) * COLUMNS + j) - 50) / 64}`].join('\n')
const short = text => text.replace(/-?\d+\.\d+/, x => String(Number(Number(x).toPrecision(6))))

const say = page => page.run("document.getElementById('say').textContent")
const box = page => page.run("(({ x, y, width, height }) => ({ x, y, width, height }))" +
    "(document.getElementById('map').getBoundingClientRect())")
async function point(page, i, j, of = [ROWS, COLUMNS]) {
    const { x, y, width, height } = await box(page)
    await page.point(x + (j + .5) * width / of[1], y + (i + .5) * height / of[0])
}
async function opened(browser, name, options) { // a page, with its first panel
    const page = await browser.page(path.join(directory, name), options)
    await page.run("document.querySelector('#wall button')?.click(), document.activeElement.blur()")
    return page
}
const hue = (page, what) => page.run(`getComputedStyle(document.body).${what}.match(/[0-9]+/g).map(Number)[0]`)

async function values(browser, name, told_by) { // every cell of a panel, under the pointer
    const page = await opened(browser, name)
    const wrong = []
    for (let i = 0; i < ROWS; i++)
        for (let j = 0; j < COLUMNS; j++) {
            await point(page, i, j)
            const got = await say(page), want = short(told_by(i, j))
            if (got !== want) wrong.push(`${i}, ${j}: ${got} instead of ${want}`)
        }
    check(`${name}: the labels and the value of each cell under the pointer`, !wrong.length, wrong[0])
    await page.close()
}

async function safe(browser) { // labels are text; nothing is loaded
    const page = await browser.page(path.join(directory, 'f32.html'))
    check('the program of the page runs without a fault', page.faults.length === 0, page.faults[0])
    check('it loads nothing but itself', page.asked.length === 1, page.asked.join(' '))
    const markup = await page.run("document.images.length + document.querySelectorAll('b').length")
    check('no label has become markup', markup === 0, markup)
    check('the title is text', await page.run('document.title + document.querySelector("h1").textContent') ===
        "</title><script>document.title = 'wrong'</script>".repeat(2))
    await page.close()
}

async function colours(browser, name) { // those of the same map as a PPM, in the middle of each cell
    const ppm = fs.readFileSync(path.join(directory, name + '.ppm')).subarray(-3 * ROWS * COLUMNS)
    const page = await opened(browser, name + '.html')
    const pixels = await page.run(`(() => {
        const map = document.getElementById('map'), pen = map.getContext('2d')
        return Array.from({ length: ${ROWS * COLUMNS} }, (_, k) => [...pen.getImageData(
            (k % ${COLUMNS} + .5) * map.width / ${COLUMNS} | 0, ((k / ${COLUMNS} | 0) + .5) * map.height / ${ROWS} | 0,
            1, 1).data]) })()`)
    const far = pixels.flatMap((pixel, k) => [0, 1, 2].map(c => Math.abs(pixel[c] - ppm[3 * k + c])))
    const different = new Set(pixels.map(String)).size
    check(`${name}.html: the colours are those of the PPM`, Math.max(...far) <= 1 && different > 20, far.join(' '))
    await page.close()
}

async function not_numbers(browser) {
    const page = await opened(browser, 'f32.html')
    await page.run("document.getElementById('panel').value = 5; document.getElementById('panel').onchange(" +
        "{ target: document.getElementById('panel') })")
    await point(page, 5, 7)
    check('NaN is told', await say(page) === told(5, 5, 7, 'NaN'), await say(page))
    await point(page, 5, 6)
    check('infinity is told', await say(page) === told(5, 5, 6, 'Infinity'), await say(page))
    const magenta = await page.run(`(() => { const map = document.getElementById('map')
        return String(map.getContext('2d').getImageData(map.width - 9, map.height - 9, 1, 1).data) })()`)
    check('NaN is magenta', magenta === '255,0,255,255', magenta)
    await page.picture(path.join(directory, 'light.png'))
    await page.close()
}

async function keyboard(browser) {
    const page = await browser.page(path.join(directory, 'f32.html'))
    const active = () => page.run('document.activeElement.id')
    const reach = async what => { for (let k = 0; k < 9 && !await page.run(what); k++) await page.press('Tab') }
    await reach("document.activeElement.parentNode.id === 'wall'")
    await page.press('Enter')
    check('the tab key reaches the first panel, Enter opens it', await active() === 'map')
    check('the focus is seen', await page.run(
        "getComputedStyle(document.getElementById('map')).outlineStyle === 'solid' && " +
        "parseInt(getComputedStyle(document.getElementById('map')).outlineWidth) >= 2"))
    check('a cell is marked at once', await say(page) === short(told(0, 0, 0)), await say(page))
    const steps = [['ArrowRight', 0, 0, 1], ['ArrowDown', 0, 1, 1], ['End', 0, 1, 7], ['ArrowRight', 0, 1, 7],
        ['ArrowLeft', 0, 1, 6], ['ArrowUp', 0, 0, 6], ['ArrowUp', 0, 0, 6], ['Home', 0, 0, 0], ['PageDown', 1, 0, 0],
        ['PageUp', 0, 0, 0], ['PageUp', 5, 0, 0], ['PageDown', 0, 0, 0]]
    const wrong = []
    for (const [key, panel, i, j] of steps) {
        await page.press(key)
        if (await say(page) !== short(told(panel, i, j))) wrong.push(key + ': ' + await say(page))
    }
    check('keys move the cell and change the panel', !wrong.length, wrong[0])
    const role = await page.run("(map => map.role + ', ' + map.ariaLabel + ', ' + document.getElementById(" +
        "map.getAttribute('aria-describedby')).textContent.slice(0, 15))(document.getElementById('map'))")
    const expected = 'application, Heatmap of 6 rows and 8 columns, Point at a cell'
    check('a screen reader is told what it is', role === expected, role)
    check('and the text of each cell', await page.run("document.getElementById('say').tagName") === 'OUTPUT')
    const labels = () => page.run("document.getElementById('names1').children.length")
    const before = await labels()
    await page.press('End')
    for (let k = 0; k < 3; k++) await page.press('+')
    check('plus enlarges, and the cell stays', await say(page) === short(told(0, 0, 7)) && await labels() <= before)
    for (let k = 0; k < 3; k++) await page.press('-')
    check('minus shows the whole again', await labels() === before)
    await page.press('Tab')
    check('without the focus no cell is marked', await say(page) === '')
    await page.close()
}

async function theme(browser) {
    for (const dark of [false, true]) {
        const page = await opened(browser, 'f32.html', { dark })
        const [paper, ink] = [await hue(page, 'backgroundColor'), await hue(page, 'color')]
        check(`${dark ? 'dark' : 'light'} as the system asks for`,
            dark ? paper < 60 && ink > 200 : paper > 200 && ink < 60, `${ink} on ${paper}`)
        await page.run("document.getElementById('theme').click()")
        const other = await hue(page, 'backgroundColor')
        check('and the other at a click', dark ? other > 200 : other < 60, other)
        await point(page, 2, 3)
        if (!dark) await page.picture(path.join(directory, 'dark.png'))
        await page.close()
    }
}

async function large(browser) { // lines of one cell are seen, and every cell can be reached
    const began = Date.now()
    const page = await browser.page(path.join(directory, 'large.html'))
    const seconds = ((Date.now() - began) / 1000).toFixed(1)
    const lost = await page.run(`(() => {
        const map = document.getElementById('map'), { width, height } = map, pen = map.getContext('2d')
        const { data } = pen.getImageData(0, 0, width, height), paper = data[4 * (width - 1) + 1]
        let lost = 0
        for (let y = 0; y < height; y++)
            for (const x of [y * width / height | 0, 1000 / 4096 * width | 0])
                lost += data[4 * (y * width + x) + 1] === paper
        return lost })()`)
    check(`4096 x 4096, there after ${seconds} s: no pixel of a line of one cell is lost`, lost === 0, lost)
    await page.run("document.getElementById('map').focus()")
    await page.press('End')
    check('the last column', await say(page) === 'row: 0\ncolumn: 4095\nvalue: 0', await say(page))
    for (const key of ['Home', '+', '+', '+', '+', '+', '+', '+', '+', '+']) await page.press(key)
    for (let k = 0; k < 20; k++) await page.press('ArrowDown')
    for (let k = 0; k < 20; k++) await page.press('ArrowRight')
    check('enlarged, it follows the cell', await say(page) === 'row: 20\ncolumn: 20\nvalue: 1', await say(page))
    const shown = await page.run("[...document.getElementById('names0').children].map(e => e.textContent)")
    check('and shows its label', shown.includes('20') && shown.length < 30, shown.join(' '))
    await page.close()
}

async function masked(browser) { // hatched in light and dark; told as masked
    for (const dark of [false, true]) {
        const page = await browser.page(path.join(directory, 'masked.html'), { dark })
        const wrong = []
        for (let i = 0; i < ROWS; i++)
            for (let j = 0; j < COLUMNS; j++) {
                await point(page, i, j, [ROWS, COLUMNS])
                const want = `row: ${i}\ncolumn: ${j}\n` + (j > i ? 'masked' : 'value: ' + +(i === j))
                if (await say(page) !== want) wrong.push(await say(page))
            }
        check(`${dark ? 'dark' : 'light'}: masked cells are told as such`, !wrong.length, wrong[0])
        const inks = await page.run(`(() => { // colours of each cell, without the lines between cells
            const map = document.getElementById('map'), pen = map.getContext('2d')
            return Array.from({ length: ${ROWS * COLUMNS} }, (_, k) => {
                const [h, w] = [map.height / ${ROWS}, map.width / ${COLUMNS}]
                const { data } = pen.getImageData(k % ${COLUMNS} * w + 2, (k / ${COLUMNS} | 0) * h + 2, w - 4, h - 4)
                return [...new Set(new Uint32Array(data.buffer))].map(ink => ink.toString(16)).sort().join(' ') })
            })()`)
        check('hatched, those of weight 0 are not', inks.every((ink, k) => k % COLUMNS > (k / COLUMNS | 0)
            ? ink === '0 ff999999' : /^ff\w{6}$/.test(ink)), inks.join('; '))
        check('the help says so', (await page.run("document.getElementById('help').textContent"))
            .includes('Hatched cells are masked'))
        await page.picture(path.join(directory, dark ? 'masked-dark.png' : 'masked.png'))
        await page.close()
    }
}

async function phone(browser) { // 390 pixels wide, under a finger
    for (const name of ['f32.html', 'masked.html', 'large.html']) {
        const page = await opened(browser, name, { width: 390, height: 844, touch: true })
        const wide = await page.run('document.documentElement.scrollWidth'), map = await box(page)
        check(`${name} on a phone: nothing is wider than it`, wide === 390, wide)
        check('the matrix reaches the edge', map.x + map.width > 370 && map.width > 200, map.x + map.width)
        const bar = await page.run("document.getElementById('bar').getBoundingClientRect().top")
        check('the colour bar is below', bar > map.y + map.height, bar)
        const help = await page.run("document.getElementById('help').innerText")
        check('the help is for fingers', help.startsWith('Touch a cell'), help)
        check('the matrix is not higher than the screen', map.height < 844, map.height)
        await page.picture(path.join(directory, 'phone-' + name.replace('html', 'png')))
        if (name === 'large.html') await finger(page)
        await page.close()
    }
}
async function finger(page) {
    const { x, y, width, height } = await box(page)
    // Taps until the button has had so many clicks, and says how many: where a busy machine lifts the finger late, the
    // browser takes it for a long press, which is no click.
    const press = async (button, times) => {
        const at = await page.run(`(({ x, y, width, height }) => [x + width / 2, y + height / 2])(document
            .getElementById('${button}').getBoundingClientRect())`)
        await page.run(`window.clicks = 0
            document.getElementById('${button}').addEventListener('click', () => clicks++)`)
        const clicks = async (least, patience) => {
            for (const end = Date.now() + patience; ;) {
                const n = await page.run('clicks')
                if (n >= least || Date.now() > end) return n
                await new Promise(resolve => setTimeout(resolve, 10))
            }
        }
        let had = 0
        for (let taps = 0; had < times && taps < 4 * times; taps++) {
            await page.drag(at)
            had = await clicks(had + 1, 1000)
        }
        return had
    }
    const label = axis => page.run(`+document.getElementById('names${axis}').firstChild.textContent`)
    await page.drag([x + width / 2, y + height / 2])
    check('a finger is told what is below it', (await say(page)).startsWith('row: 2'), await say(page))
    const enlarged = await press('nearer', 6)
    const before = [await label(0), await label(1)]
    await page.drag(...[[.8, .8], [.5, .6], [.2, .4]].map(([i, j]) => [x + width * i, y + height * j]))
    const after = [await label(0), await label(1)]
    check('enlarged, the matrix follows the finger', after.every((k, a) => k > before[a]), `${before} to ${after}`)
    await press('farther', enlarged)
    check('and is seen as a whole again', await label(0) === 0 && await label(1) === 0)
}

const view = page => page.run(`['all', 'cells', 'lines'].filter(id =>
    document.getElementById(id).ariaPressed === 'true').join() +
    [...document.querySelectorAll('#wall, #plot, #pair')].filter(e => e.offsetWidth).map(e => ' ' + e.id).join()`)

async function wall(browser) { // small heatmaps of all panels
    const page = await browser.page(path.join(directory, 'f32.html'), { width: 1400 })
    const names = await page.told('#wall button')
    check('a page of several panels begins with all of them', await view(page) === 'all wall', await view(page))
    check('each is a button with its name', names.map(b => b.role + ' ' + b.name).join() ===
        [0, 1].flatMap(b => [0, 1, 2].map(h => `button Batch ${b}, head ${h}`)).join(), JSON.stringify(names))
    const tops = await page.run("[...document.querySelectorAll('#wall button')].map(b => b.offsetTop)")
    check('a row for each batch', tops[0] === tops[2] && tops[2] < tops[3] && tops[3] === tops[5], tops)
    await page.run('new Promise(done => setTimeout(done, 200))')
    const ppm = fs.readFileSync(path.join(directory, 'f32.ppm')).subarray(-3 * ROWS * COLUMNS)
    const far = await page.run(`(() => { // of the first tile, against the PPM
        const map = document.querySelector('#wall canvas'), { width, height } = map
        const { data } = map.getContext('2d').getImageData(0, 0, width, height)
        return Array.from({ length: ${ROWS * COLUMNS} }, (_, k) => {
            const at = ((k / ${COLUMNS} | 0) + .5) * height / ${ROWS} | 0
            return [...data.slice(4 * (at * width + ((k % ${COLUMNS} + .5) * width / ${COLUMNS} | 0))).slice(0, 3)] })
        })()`)
    check('with its colours', far.flat().every((x, k) => Math.abs(x - ppm[k]) <= 1), far.join(' '))
    const focused = () => page.run("document.activeElement.textContent || document.activeElement.id")
    await page.run("document.querySelectorAll('#wall button')[4].click()")
    check('a click opens one', await view(page) === 'cells plot' && (await say(page)).startsWith('Batch 1, head 1'),
        await say(page))
    await page.press('Escape')
    check('Escape goes back to it', await view(page) === 'all wall' && await focused() === 'Batch 1, head 1',
        await focused())
    const wrong = []
    for (const [key, to] of [['ArrowLeft', 'Batch 1, head 0'], ['ArrowUp', 'Batch 0, head 0'], ['ArrowUp',
        'Batch 0, head 0'], ['ArrowDown', 'Batch 1, head 0'], ['End', 'Batch 1, head 2'], ['ArrowRight',
        'Batch 1, head 2'], ['Home', 'Batch 0, head 0'], ['ArrowRight', 'Batch 0, head 1']]) {
        await page.press(key)
        if (await focused() !== to) wrong.push(`${key}: ${await focused()}`)
    }
    check('arrow keys move between them', !wrong.length, wrong.join(', '))
    check('of which one is a stop of the tab key, with a focus that is seen', await page.run(
        "document.querySelectorAll('#wall [tabindex=\"0\"]').length === 1 && document.activeElement.tabIndex === 0 &&" +
        "getComputedStyle(document.activeElement).outlineStyle === 'solid'"))
    await page.press('Enter')
    check('Enter opens it', await say(page) === short(told(1, 0, 0)), await say(page))
    await page.run("document.getElementById('lines').click()")
    await page.press('Escape')
    await page.press('ArrowRight')
    await page.press('Enter')
    check('as lines, where the last one was', await view(page) === 'lines pair' && await focused() !== 'map' &&
        await page.run("document.getElementById('panel').value") === '2', await view(page))
    check('without a fault', page.faults.length === 0, page.faults[0])
    await page.close()
}

// What a line of value v looks like, of 8 pixels for the largest magnitude: none below 1/200 of it.
const strand = v => {
    const part = Math.min(1, Math.abs(v) / (50 / 64))
    return part < 1 / 200 ? [] : [[v < 0 ? '#2d71c7' : '#b9473d', +(8 * part).toFixed(3)].join(' ')]
}
const strands = page => page.run(`[...document.querySelectorAll('#threads line')].map(line =>
    line.getAttribute('stroke').toLowerCase() + ' ' + +(+line.getAttribute('stroke-width')).toFixed(3))`)
const value_at = k => (code(k) - 50) / 64

async function lines(browser) {
    const page = await opened(browser, 'f32.html')
    await page.run("document.getElementById('lines').click()")
    const want = Array.from({ length: ROWS * COLUMNS }, (_, k) => strand(value_at(k))).flat(), got = await strands(page)
    check(`${got.length} lines, as thick as their values, in the colours of their signs`,
        String(got) === String(want), `${got} instead of ${want}`)
    const ends = await page.run(`(() => { // from the middle of a query's label to that of a key's
        const middle = e => (e.getBoundingClientRect().top + e.getBoundingClientRect().bottom) / 2
        const [left, right] = [0, 1].map(a => [...document.getElementById('side' + a).children].map(middle))
        const top = document.getElementById('threads').getBoundingClientRect().top
        return [...document.querySelectorAll('#threads line')].map((line, k) =>
            Math.max(Math.min(...left.map(y => Math.abs(y - top - line.y1.baseVal.value))),
                Math.min(...right.map(y => Math.abs(y - top - line.y2.baseVal.value))))) })()`)
    check('from word to word', ends.length && Math.max(...ends) < 1, Math.max(...ends))
    const panel = async n => {
        await page.run(`document.getElementById('panel').value = ${n}
            document.getElementById('panel').onchange({ target: document.getElementById('panel') })`)
        return strands(page)
    }
    const last = await panel(5)
    check('NaN is a dashed line, infinity a thick one', last.at(-1) === '#f0f 1' && last.at(-2) === '#b9473d 8' &&
        await page.run("document.querySelectorAll('#threads [stroke-dasharray]').length") === 1, last.slice(-2))
    await page.picture(path.join(directory, 'lines.png'))
    await page.close()
    const other = await opened(browser, 'masked.html')
    await other.run("document.getElementById('lines').click()")
    check('a masked pair has no line', (await strands(other)).length === ROWS, await strands(other))
    check('nor is there a panel to pick, or an overview', await other.run(
        "document.querySelector('nav').hidden && document.getElementById('all').hidden"))
    await other.press('Escape')
    check('and Escape does nothing', await view(other) === 'lines pair', await view(other))
    await other.close()
}

async function lines_of_a_word(browser) {
    const page = await opened(browser, 'f32.html')
    await page.run("document.getElementById('lines').click()")
    const texts = side => page.run(`[...document.querySelectorAll('#side${side} i')].map(i => i.textContent)`)
    const word = (side, k) => page.run(`(({ left, right, top, bottom }) => [(left + right) / 2, (top + bottom) / 2])(
        document.querySelectorAll('#side${side} i')[${k}].getBoundingClientRect())`)
    const tell = () => page.run("document.getElementById('tell').textContent")
    const row = i => Array.from({ length: COLUMNS }, (_, j) => value_at(i * COLUMNS + j))
    const column = j => Array.from({ length: ROWS }, (_, i) => value_at(i * COLUMNS + j))
    const value = v => String(+v.toPrecision(3))
    await page.point(...await word(0, 3))
    check('the lines of the word under the pointer alone',
        String(await strands(page)) === String(row(3).flatMap(strand)), await strands(page))
    check('with the values beside the other words', String(await texts(1)) === String(columns.map((c, j) =>
        c + value(row(3)[j]))) && String(await texts(0)) === String(rows), await texts(1))
    await page.point(...await word(1, 6))
    check('and on the other side', String(await strands(page)) === String(column(6).flatMap(strand)) &&
        String(await texts(0)) === String(rows.map((r, i) => r + value(column(6)[i]))), await texts(0))
    await page.point(5, 5)
    check('elsewhere all lines are back', (await strands(page)).length > 40 && await tell() === '')
    for (let k = 0; k < 12 && await page.run('document.activeElement.id') !== 'pair'; k++) await page.press('Tab')
    check('the tab key reaches the words, with a focus that is seen', await page.run(
        "document.activeElement.id === 'pair' && getComputedStyle(document.activeElement).outlineStyle === 'solid'"),
        await page.run('document.activeElement.outerHTML.slice(0, 99)'))
    const wrong = []
    for (const [key, side, k] of [['Home', 0, 0], ['ArrowDown', 0, 1], ['ArrowRight', 1, 2], ['ArrowDown', 1, 3],
        ['End', 1, 7], ['ArrowDown', 1, 7], ['ArrowLeft', 0, 5], ['ArrowUp', 0, 4], ['ArrowLeft', 0, 4]]) {
        await page.press(key)
        const want = (side ? column(k) : row(k)).flatMap(strand)
        const name = side ? 'keys: ' + columns[k] : 'queries: ' + rows[k]
        if (String(await strands(page)) !== String(want) || (await tell()).split('\n')[0] !== name)
            wrong.push(key + ': ' + await tell())
    }
    check('keys move between words', !wrong.length, wrong[0])
    const five = row(4).map((v, j) => [v, columns[j]]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, 5)
    check('a screen reader is told the word and its five largest values', await tell() ===
        'queries: \n' + five.map(([v, name]) => name + ' ' + value(v)).join(', ') &&
        await page.run("document.getElementById('tell').tagName") === 'OUTPUT', await tell())
    await page.press('PageDown')
    check('Page Down shows the next panel', await page.run("document.getElementById('panel').value") === '1')
    await page.picture(path.join(directory, 'lines-word.png'))
    check('without a fault', page.faults.length === 0, page.faults[0])
    await page.close()
}

async function many_lines(browser) {
    const page = await browser.page(path.join(directory, 'large.html'))
    const began = Date.now()
    await page.run("document.getElementById('lines').click()")
    const seconds = ((Date.now() - began) / 1000).toFixed(1), count = (await strands(page)).length
    check(`of 4096 x 4096, after ${seconds} s: at most 4000 lines, the thickest`, count > 0 && count <= 4000 &&
        (await strands(page)).every(line => line === '#b9473d 8'), count)
    check('and the page says so', await page.run("document.getElementById('many').offsetWidth > 0"))
    await page.run("document.getElementById('pair').focus()")
    await page.press('ArrowDown')
    check('a word has all of its own', (await strands(page)).join() === '#b9473d 8,#b9473d 4', await strands(page))
    await page.close()
}

async function follows(browser) { // what a key has chosen is in the window, and nothing lies over it
    const seen = (page, what) => page.run(`(() => { // of it that many pixels are hidden
        const e = ${what}, { left, right, top, bottom } = e.getBoundingClientRect()
        const tell = document.getElementById('tell').getBoundingClientRect()
        const over = document.elementFromPoint((left + right) / 2, (top + bottom) / 2)?.id === 'tell'
        const end = tell.height ? Math.min(innerHeight, tell.top) : innerHeight
        return over ? 'under #tell' : Math.floor(Math.max(0, -top, bottom - end)) })()`)
    for (const [width, height] of [[1400, 900], [1000, 700], [360, 740], [740, 360]]) {
        const page = await opened(browser, 'words.html', { width, height })
        await page.run("document.getElementById('lines').click()")
        const tell = () => page.run("document.getElementById('tell').offsetHeight")
        const empty = await tell()
        await page.run("document.getElementById('pair').focus()")
        const press = async (page, what, keys) => { // the keys after which it is hidden
            const wrong = []
            for (const [k, key] of keys.entries()) {
                await page.press(key)
                const hidden = await seen(page, what)
                if (hidden) wrong.push(`${key} (${k}): ${hidden}`)
            }
            return wrong.join(', ')
        }
        const down = Array(39).fill('ArrowDown'), up = Array(39).fill('ArrowUp')
        const word = await press(page, "document.querySelector('#pair .on')",
            [...down, 'Home', 'End', 'ArrowRight', ...up, 'End', 'ArrowLeft'])
        await page.run("scrollTo(0, 0)")
        const again = await press(page, "document.querySelector('#pair .on')", ['End'])
        check(`${width} x ${height}: the page follows the word`, !word && !again, word + again)
        check('an empty text takes no room', empty === 0 && await tell() > 0, empty)
        await page.run("document.getElementById('cells').click(), document.getElementById('map').focus()")
        const cell = await press(page, "document.getElementById('cell')", [...down, ...up])
        check('and the cell', !cell, cell)
        await page.close()
        const grid = await browser.page(path.join(directory, 'f32.html'), { width, height })
        await grid.run("document.querySelector('#wall button').focus()")
        const tile = await press(grid, 'document.activeElement', ['End', 'Home', ...down.slice(0, 3)])
        check('and the panel', !tile, tile)
        await grid.close()
    }
    const places = async first => {
        const page = await browser.page(path.join(directory, 'f32.html'), { first })
        const painted = "[...document.querySelectorAll('#wall canvas')].every(e => e.width !== 300)" // 300: a new one's
        while (!first && !await page.run(painted)) await page.run('new Promise(requestAnimationFrame)')
        const all = await page.run(`[...document.querySelectorAll('#wall *')].map(e => {
            const { left, top, width, height } = e.getBoundingClientRect()
            return [left, top, width, height].join(' ') })`)
        await page.close()
        return all
    }
    const never = 'IntersectionObserver = class { observe() {} unobserve() {} }'
    const painted = await places(''), bare = await places(never)
    check('a panel takes its place before it is painted', painted.length === 12 && String(bare) === String(painted),
        `${bare[0]} instead of ${painted[0]}, ${painted.length}`)
    const page = await browser.page(path.join(directory, 'large.html'))
    await page.run("document.getElementById('lines').click(), document.getElementById('pair').focus()")
    for (const key of ['End', 'ArrowUp']) await page.press(key)
    const on = "document.querySelector('#pair .on')"
    check('of more words than have room the chosen one is there', await page.run(on + '?.textContent') === '4094' &&
        !await seen(page, on), await page.run(on + '?.textContent'))
    await page.close()
    const long = await opened(browser, 'long.html', { width: 360, height: 700 })
    await long.run("document.getElementById('lines').click(), document.getElementById('pair').focus()")
    await long.press('End')
    const [part, all] = await long.run("(e => [e.offsetHeight, e.scrollHeight])(document.getElementById('tell'))")
    check('a long text leaves the lines most of the window', part <= 280 && !await seen(long, on), part)
    check('and scrolls', all > part, `${all} in ${part}`)
    await long.close()
}

async function pointed(browser) { // a word that the text comes to lie over stays chosen, and one under a finger
    const page = await opened(browser, 'words.html', { width: 1400, height: 900 })
    await page.run("document.getElementById('lines').click()")
    const at = () => page.run(`(e => [e.left + 30, innerHeight - 12])(
        document.getElementById('side0').getBoundingClientRect())`)
    const tell = () => page.run("document.getElementById('tell').textContent.split('\\n')[0]")
    const told = new Set()
    await page.point(...await at())
    for (let k = 0; k < 5; k++) {
        await page.run('new Promise(done => setTimeout(done, 60))')
        told.add(await tell())
    }
    check('a word at the lower edge stays chosen', told.size === 1 && [...told][0].startsWith('row: word'),
        [...told].join('; '))
    await page.point(5, 5)
    check('until the pointer leaves it', await tell() === '', await tell())
    await page.close()
    const phone = await opened(browser, 'words.html', { width: 360, height: 740, touch: true })
    await phone.run("document.getElementById('lines').click()")
    await phone.drag(await phone.run(`(e => [e.left + 30, e.top + 8])(
        document.querySelectorAll('#side0 i')[5].getBoundingClientRect())`))
    await phone.run('new Promise(done => setTimeout(done, 400))')
    const name = await phone.run("document.getElementById('tell').textContent.split('\\n')[0]")
    check('a finger chooses the word below it, whose name is told in full', name === 'row: word5-rather-long-name',
        name)
    await phone.run('document.activeElement.blur()')
    await phone.drag([60, 600], [60, 500], [60, 300])
    await phone.run('new Promise(done => setTimeout(done, 400))')
    check('one that moves the page chooses none', await phone.run("scrollY > 0 && !document.getElementById('tell')" +
        ".textContent"), await phone.run("scrollY + document.getElementById('tell').textContent"))
    await phone.close()
}

async function wide_letters(browser) { // no text of the lines of an SVG file is past its edge
    for (const name of ['lines.svg', 'wide0.svg', 'wide1.svg', 'wide2.svg']) {
        const page = await browser.page(path.join(directory, name), { width: 1400 })
        const wrong = await page.run(`(() => {
            const all = document.documentElement.width.baseVal.value
            return [...document.querySelectorAll('text')].flatMap(text => {
                const { x, width } = text.getBBox()
                return x >= 0 && x + width <= all ? [] : [text.textContent + ': ' + x + ' to ' + (x + width)]
            }) })()`)
        check(`${name}: no text is past an edge`, !wrong.length, wrong.join('; '))
        await page.picture(path.join(directory, name.replace('svg', 'png')))
        await page.close()
    }
}

async function widest(page, view) { // the page, with the text of each cell where cells are shown
    const wide = () => page.run('document.documentElement.scrollWidth')
    let most = await wide()
    if (view !== 'cells') return most
    await page.run("document.getElementById('map').focus()")
    for (let i = 0; i < ROWS; i++)
        for (const key of ['Home', ...Array(COLUMNS - 1).fill('ArrowRight'), 'ArrowDown']) {
            await page.press(key)
            most = Math.max(most, await wide())
        }
    return most
}
async function fits(browser) { // nothing is wider than the page, no target smaller than 24 pixels
    for (const width of [360, 1400])
        for (const dark of [false, true]) {
            const page = await browser.page(path.join(directory, 'f32.html'), { width, dark, touch: width < 400 })
            const wrong = []
            for (const id of ['all', 'cells', 'lines']) {
                await page.run(`document.getElementById('${id}').click()`)
                if (id === 'lines') await page.run("document.getElementById('pair').focus()")
                await page.run('new Promise(done => setTimeout(done, 100))')
                const wide = await widest(page, id)
                const small = await page.run(`[...document.querySelectorAll('button, select, canvas')].filter(e => {
                    const { width, height } = e.getBoundingClientRect()
                    return width && Math.min(width, height) < 24 }).map(e => e.id || e.textContent).join()`)
                if (wide > width || small) wrong.push(`${id}: ${wide} wide, small: ${small}`)
                await page.picture(path.join(directory, `${id}-${width}${dark ? '-dark' : ''}.png`))
            }
            check(`${width} pixels, ${dark ? 'dark' : 'light'}: each view fits, its targets are large enough`,
                !wrong.length, wrong.join('; '))
            await page.close()
        }
}

async function titles(browser) { // cells of an SVG, numbers and all
    const page = await browser.page(path.join(directory, 'titles.svg'))
    const wrong = await page.run(`[...document.querySelectorAll('g > title')].map((title, k) => {
        const { x, y, width, height } = title.parentNode.querySelector('rect').getBoundingClientRect()
        const over = document.elementFromPoint(x + width / 2, y + height / 2).parentNode.querySelector('title')
        return over === title ? null : k + ': ' + over?.textContent })`)
    check('SVG: each cell has its title under the pointer', wrong.length === ROWS * COLUMNS && wrong.every(x => !x),
        wrong.join(' '))
    await page.close()
}

async function all() {
    const browser = await open(chromium)
    await safe(browser)
    for (const type of ['f32', 'f16', 'bf16']) await values(browser, type + '.html', (i, j) => told(0, i, j))
    await values(browser, 'u8.html', (i, j) => told(0, i, j, code(i * COLUMNS + j)))
    for (const name of ['f32', 'signed']) await colours(browser, name)
    await not_numbers(browser)
    await keyboard(browser)
    await wall(browser)
    await lines(browser)
    await lines_of_a_word(browser)
    await many_lines(browser)
    await follows(browser)
    await pointed(browser)
    await wide_letters(browser)
    await fits(browser)
    await theme(browser)
    await large(browser)
    await masked(browser)
    await phone(browser)
    await titles(browser)
    const page = await browser.page(path.join(directory, 'empty.html'))
    const text = await page.run('document.body.innerText')
    check('a map without cells says so', !page.faults.length && text.includes('no cells'), text)
    check('and has nothing to pick', await page.run("document.querySelector('nav').hidden"))
    await browser.close()
    sum()
}
all().catch(error => { check('the browser: ' + error.message, false, error.stack); sum() })
