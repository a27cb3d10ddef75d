// check.js - the lines that a test in a browser prints: ok, or FAILED with what was seen instead.
let failed = 0
exports.check = (what, holds, seen = '') => {
    if (holds) console.log('ok      ' + what)
    else console.log('FAILED  ' + what + (seen === '' ? '' : '\n        ' + String(seen).replace(/\n/g, '\n        ')))
    failed += !holds
}
exports.sum = () => process.exit(failed > 0 ? 1 : 0)
