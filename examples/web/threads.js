// threads.js - runs threads.c on 1, 2 and 4 workers that share one memory: node threads.js THREADS.WASM. In a page it
// is the same with `new Worker`; a browser shares memory only with a page that is served with the headers
// Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp (crossOriginIsolated says
// whether), and without it one thread runs all tasks.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads')
const { readFileSync } = require('fs')
const { availableParallelism } = require('os')

// Each thread has an instance of the module: the same memory, a stack of its own.
function instance({ module, memory, worker }) {
    const { exports } = new WebAssembly.Instance(module, { env: { memory } })
    exports.__stack_pointer.value = exports.stack_of(worker)
    return exports
}

async function main() {
    const module = new WebAssembly.Module(readFileSync(process.argv[2]))
    const memory = new WebAssembly.Memory({ initial: 640, maximum: 640, shared: true })
    const pages = instance({ module, memory, worker: 0 }), hashes = []
    let alone
    for (const count of [1, 2, 4]) {
        const workers = Array.from({ length: count }, (_, k) => new Worker(__filename,
            { workerData: { module, memory, worker: k + 1 } }))
        const all = phase => Promise.all(workers.map((worker, k) => new Promise((done, fail) => {
            worker.once('message', done).once('error', fail)
            worker.postMessage({ phase, worker: k })
        })))
        const phases = pages.prepare(count)
        if (!phases) throw new Error('attn.h refused')
        let least = Infinity
        for (const end = performance.now() + 2000; performance.now() < end;) { // the fastest of two seconds' calls
            const began = performance.now()
            for (let phase = 0; phase < phases; phase++) {
                pages.begin()
                await all(phase)
            }
            least = Math.min(least, performance.now() - began)
        }
        hashes.push(pages.hash() >>> 0)
        alone ??= least
        console.log(`${count} worker${count > 1 ? 's' : ''} on ${availableParallelism()} processors: ` +
            `${least.toFixed(2)} ms, ${(alone / least).toFixed(2)} times as fast as one` +
            (pages.relaxed() ? ', relaxed SIMD' : ''))
        await Promise.all(workers.map(worker => worker.terminate()))
    }
    const same = hashes.every(hash => hash === hashes[0] && hash)
    console.log(same ? 'the same bits' : 'DIFFERENT BITS: ' + hashes)
    process.exitCode = same ? 0 : 1
}

if (isMainThread) main()
else {
    const pages = instance(workerData)
    parentPort.on('message', ({ phase, worker }) => {
        pages.work(phase, worker)
        parentPort.postMessage('done')
    })
}
