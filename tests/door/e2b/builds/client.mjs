// Templates built by e2b of npm: node client.mjs SDK DIRECTORY, whose files client.py has made. Else as client.py.
import { createRequire } from 'node:module'

const [sdk, directory] = process.argv.slice(2)
const { Sandbox, Template } = createRequire(sdk + '/x.js')('e2b')
const check = (condition, what) => { if (!condition) throw new Error((typeof what === 'string' ? what : JSON.stringify(what) ?? 'nothing').slice(0, 600)) }
const equal = (got, wanted) => check(JSON.stringify(got) === JSON.stringify(wanted), `${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`)
const template = () => Template({ fileContextPath: directory })

async function inside(name, command) {
  const sb = await Sandbox.create(name, { timeoutMs: 120_000 })
  try { return (await sb.commands.run(command)).stdout } finally { await sb.kill() }
}

const CASES = {
  async js_steps() {
    const recipe = template().fromImage('debian').copy('app', '/srv/app').copy('one.txt', '/etc/', { mode: 0o600, user: 'root' })
      .setEnvs({ BAKED: 'yes' }).setWorkdir('/srv/app').runCmd('./run.sh >/tmp/ran; whoami >>/tmp/ran')
    await Template.build(recipe, 'js-steps', { cpuCount: 1, memoryMB: 512 })
    equal(await inside('js-steps', 'cat /tmp/ran main.txt; echo $BAKED; pwd; stat -c "%U %a" /etc/one.txt run.sh'), 'ran\nuser\nmain\nyes\n/srv/app\nroot 600\nuser 755\n')
  },
  async js_logs() {
    const lines = []
    await Template.build(template().fromImage('debian').runCmd('seq -f "line %g" 500'), 'js-logs', { onBuildLogs: l => lines.push(l.message) })
    equal(lines.filter(l => l.startsWith('line ')), Array.from({ length: 500 }, (_, i) => `line ${i + 1}`))
  },
  async js_failing() {
    let failure
    try { await Template.build(template().fromImage('debian').runCmd('echo fine').runCmd('echo the reason >&2; exit 7'), 'js-failing') } catch (e) { failure = e }
    check(failure?.constructor.name === 'BuildError' && /step 2 .*exit status 7.*the reason/.test(failure.message), String(failure))
    equal(await Template.exists('js-failing'), false)
  },
  async js_start() {
    const recipe = template().fromImage('debian').setStartCmd('while sleep 0.1; do date >/tmp/alive; done', 'test -s /tmp/alive')
    await Template.build(recipe, 'js-start')
    equal(await inside('js-start', 'for i in $(seq 100); do [ -s /tmp/alive ] && break; sleep 0.1; done; [ -s /tmp/alive ] && echo alive'), 'alive\n')
  },
  async js_tags() {
    await Template.build(template().fromImage('debian').runCmd('echo 1 >v'), 'js-tagged:v1')
    await Template.assignTags('js-tagged:v1', ['default'])
    equal(await inside('js-tagged', 'cat v'), '1\n')
    equal((await Template.getTags('js-tagged')).map(t => t.tag).sort(), ['default', 'v1'])
    await Template.removeTags('js-tagged', 'v1')
    equal([await Template.exists('js-tagged:v1'), await Template.exists('js-tagged')], [false, true])
  }
}

const chosen = process.env.BOTHY_CASES.split(' ')
for (const [name, run] of Object.entries(CASES).filter(([name]) => chosen.includes(name))) {
  const began = performance.now()
  let why = ''
  try { await run() } catch (e) { why = `${e.constructor.name}: ${e.message}`.slice(0, 1500) }
  console.log(JSON.stringify({ name, why, ms: performance.now() - began }))
}
process.exit(0)
