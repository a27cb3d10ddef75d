// wasi.js - runs a program built for WASI: node tests/wasi.js PROGRAM ARGUMENTS...
const { WASI } = require('wasi')
const fs = require('fs')
const wasi = new WASI({ version: 'preview1', args: process.argv.slice(2), env: {}, preopens: {} })
WebAssembly.instantiate(fs.readFileSync(process.argv[2]), { wasi_snapshot_preview1: wasi.wasiImport })
    .then(program => process.exit(wasi.start(program.instance)))
