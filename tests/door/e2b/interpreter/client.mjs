// Cells by @e2b/code-interpreter of npm: node client.mjs DIRECTORY FILE; the cells come on stdin (cells.py). Else as client.py.
import fs from 'node:fs'
import { createRequire } from 'node:module'

const [directory, file] = process.argv.slice(2)
const { Sandbox } = createRequire(directory + '/x.js')('@e2b/code-interpreter')
const cells = JSON.parse(fs.readFileSync(0, 'utf8'))
const check = (condition, what) => { if (!condition) throw new Error((typeof what === 'string' ? what : JSON.stringify(what) ?? 'nothing').slice(0, 400)) }
const text = parts => parts.join('')

const CASES = {
  async cell_value(sb) {
    const e = await sb.runCode('x = 20\nx + 1')
    check(e.text === '21' && !e.error, e)
    check((await sb.runCode('x * 2')).text === '40', 'the state is lost')
  },
  async cell_output(sb) {
    const out = [], err = []
    const e = await sb.runCode("import sys\nprint('one')\nprint('zwölf', file=sys.stderr)", { onStdout: m => out.push(m.line), onStderr: m => err.push(m.line) })
    check(text(out) === 'one\n' && text(err) === 'zwölf\n', [out, err])
    check(text(e.logs.stdout) === 'one\n', e.logs)
  },
  async cell_error(sb) {
    const { error } = await sb.runCode('def f():\n    1/0\nf()')
    check(error?.name === 'ZeroDivisionError' && error.value.includes('division') && error.traceback.includes('f()'), error)
  },
  async cell_plot(sb) {
    const e = await sb.runCode(cells.plot)
    check(!e.error && e.results.length, e)
    const png = Buffer.from(e.results[0].png, 'base64')
    check(png.subarray(0, 8).toString('latin1') === '\x89PNG\r\n\x1a\n' && png.length > 5000, `${png.length} bytes`)
    fs.writeFileSync(file, png)
  },
  async cell_chart(sb) {
    const { chart } = (await sb.runCode(cells.bars)).results[0]
    check(chart?.type === 'bar' && chart.title === 'bars' && chart.elements.length === 3, chart)
  },
  async cell_table(sb) {
    const [result] = (await sb.runCode(cells.table)).results
    check(result.html?.includes('<table'), result)
  },
  async cell_file(sb) {
    await sb.runCode("open('/tmp/made', 'w').write('by a cell')")
    check(await sb.files.read('/tmp/made') === 'by a cell', 'another text')
    check((await sb.runCode('import getpass; getpass.getuser()')).text === 'user', 'another user')
  },
  async cell_context(sb) {
    const context = await sb.createCodeContext({ language: 'python', cwd: '/tmp' })
    await sb.runCode('y = 1', { context })
    check((await sb.runCode("'y' in globals()")).text === 'False', 'contexts share their state')
    check((await sb.runCode('import os; os.getcwd()', { context })).text === '/tmp', 'another directory')
    if (!sb.listCodeContexts) return
    check((await sb.listCodeContexts()).some(c => c.id === context.id), 'not listed')
    await sb.restartCodeContext(context)
    check((await sb.runCode("'y' in globals()", { context })).text === 'False', 'the state outlived a restart')
    await sb.removeCodeContext(context)
    check(!(await sb.listCodeContexts()).some(c => c.id === context.id), 'listed after its end')
  },
  async cell_javascript(sb) {
    const e = await sb.runCode('console.log([1, 2, 3].map(x => x * 2).join())', { language: 'javascript' })
    check(text(e.logs.stdout) === '2,4,6\n', e)
  },
  async cell_bash(sb) {
    const e = await sb.runCode('echo $((6 * 7)); echo oops >&2', { language: 'bash' })
    check(text(e.logs.stdout) === '42\n' && text(e.logs.stderr) === 'oops\n', e)
  },
  async cell_environment(sb) {
    check((await sb.runCode("import os; os.environ['GIVEN']", { envs: { GIVEN: 'by the cell' } })).text === 'by the cell', 'another value')
  },
  async cell_timeout(sb) {
    const began = Date.now()
    let thrown
    try { await sb.runCode('import time; time.sleep(60)', { timeoutMs: 2000 }) } catch (e) { thrown = e }
    check(thrown && /imed out|imeout|abort/i.test(thrown.name + thrown.message), String(thrown))
    check(Date.now() - began < 10000, 'it took too long')
    check((await sb.runCode('1 + 1')).text === '2', 'nothing runs after it')
  },
}

const sb = await Sandbox.create({ timeoutMs: 300000 })
try {
  const chosen = process.env.BOTHY_CASES.split(' ')
  for (const [name, body] of Object.entries(CASES).filter(([name]) => chosen.includes(name))) {
    const began = Date.now()
    let why = null
    try { await body(sb) } catch (e) { why = `${e?.name}: ${String(e?.message).slice(0, 400)}` }
    process.stdout.write(JSON.stringify({ name, why, ms: Date.now() - began }) + '\n')
  }
} finally { await sb.kill() }
process.exit(0)
