// threads.js - runs threads.c on 1, 2 and 4 workers that share one memory: `node threads.js THREADS.WASM`, or in a
// page, threads.html with threads.wasm beside it. A browser lets only such pages share memory as are served with the
// headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp; in others the page's
// own thread takes all tasks.
const node = typeof require === 'function' && require('worker_threads')

// Each thread has an instance of the module: the same memory, a stack of its own.
function instance({ module, memory, thread }) {
    const { exports } = new WebAssembly.Instance(module, { env: { memory } })
    exports.__stack_pointer.value = exports.stack_of(thread)
    return exports
}

const new_worker = () => node ? new node.Worker(__filename) : new Worker('threads.js')
const ask = (worker, message) => new Promise((done, fail) => {
    if (node) worker.once('message', done).once('error', fail)
    else worker.onmessage = done, worker.onerror = fail
    worker.postMessage(message)
})

// measure(module, tell): tells a line for each number of workers, and at last whether all had the same bits.
async function measure(module, tell) {
    const memory = new WebAssembly.Memory({ initial: 640, maximum: 640, shared: true })
    const program = instance({ module, memory, thread: 0 }), hashes = []
    const processors = node ? require('os').availableParallelism() : navigator.hardwareConcurrency
    let alone
    for (const count of node || crossOriginIsolated ? [1, 2, 4] : [0]) {
        const workers = Array.from({ length: count }, new_worker)
        await Promise.all(workers.map((worker, k) => ask(worker, { module, memory, thread: k + 1 })))
        const phases = program.prepare(Math.max(count, 1))
        if (!phases) throw new Error('attn.h refused')
        let least = Infinity
        for (const end = performance.now() + 2000; performance.now() < end;) { // the fastest of two seconds' calls
            const began = performance.now()
            for (let phase = 0; phase < phases; phase++) {
                program.begin()
                if (!count) program.work(phase, 0)
                await Promise.all(workers.map((worker, k) => ask(worker, { phase, worker: k })))
            }
            least = Math.min(least, performance.now() - began)
        }
        workers.forEach(worker => worker.terminate())
        hashes.push((program.hash() >>> 0).toString(16))
        alone ??= least
        tell((count ? `workers: ${count}` : 'the page alone, as it may not share memory') + '; processors: ' +
            `${processors}; ${least.toFixed(2)} ms, ${(alone / least).toFixed(2)} times as fast as the first` +
            (program.relaxed() ? '; relaxed SIMD' : ''))
    }
    const same = hashes.every(hash => hash === hashes[0])
    tell(same ? 'the same bits: ' + hashes[0] : 'DIFFERENT BITS: ' + hashes)
    return same
}

function serve() { // as a worker: the first message brings module and memory, each other one a phase
    const answer = node ? node.parentPort : self
    let program
    const work = message => {
        if (message.module) program = instance(message)
        else program.work(message.phase, message.worker)
        answer.postMessage('done')
    }
    if (node) answer.on('message', work)
    else answer.onmessage = ({ data }) => work(data)
}

if (node ? !node.isMainThread : typeof document === 'undefined') serve()
else if (node) {
    measure(new WebAssembly.Module(require('fs').readFileSync(process.argv[2])), console.log)
        .then(same => process.exit(same ? 0 : 1))
}
