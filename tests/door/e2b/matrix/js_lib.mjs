// What the behaviours in JavaScript share: the SDK of a version, ways to make sandboxes, what is asserted.
import fs from 'node:fs'
import http from 'node:http'
import { createRequire } from 'node:module'
import { isDeepStrictEqual } from 'node:util'

const env = process.env
const DOMAIN = 'sbx.test'
const URL_ = new URL(env.BOTHY_URL)
const require = createRequire(process.argv[2] + '/x.js')
export const VERSION = require('e2b/package.json').version.split('.').map(Number)
export const atLeast = (...wanted) => {
  for (let i = 0; i < wanted.length; i++) if (VERSION[i] !== wanted[i]) return VERSION[i] > wanted[i]
  return true
}

// One request on the server that is tested, with the host that the URL names; body: a stream.
const led = (url, method, headers, body, signal) => new Promise((done, failed) => {
  const rq = http.request({ host: URL_.hostname, port: URL_.port, method, path: url.pathname + url.search, headers: { ...headers, host: url.host } }, rs => {
    const none = [101, 204, 205, 304].includes(rs.statusCode)
    const stream = none ? null : new ReadableStream({
      start(c) {
        rs.on('data', d => c.enqueue(new Uint8Array(d)))
        rs.on('end', () => { try { c.close() } catch {} })
        rs.on('error', e => { try { c.error(e) } catch {} })
        rs.on('aborted', () => { try { c.error(new TypeError('terminated')) } catch {} })
      },
      cancel() { rs.destroy() },
    })
    if (none) rs.resume()
    const got = new Headers()
    for (const [k, v] of Object.entries(rs.headers)) got.set(k, String(v))
    done(new Response(stream, { status: rs.statusCode, headers: got }))
  })
  signal?.addEventListener('abort', () => { rq.destroy(); failed(signal.reason) })
  rq.on('error', failed)
  if (body) rq.write(body)
  rq.end()
})

if (atLeast(2, 14, 1)) Object.assign(env, { E2B_API_URL: env.BOTHY_URL, E2B_SANDBOX_URL: env.BOTHY_URL })
else env.E2B_DOMAIN = DOMAIN // by TLS (front.py)
export const e2b = require('e2b')
// Options of calls can be seen only in its declarations.
const declared = fs.readFileSync(require.resolve('e2b').replace(/\.js$/, '.d.ts'), 'utf8')
export const mentions = what => declared.includes(what)

export class Skip extends Error {}
export const skip = why => { throw new Skip(why) }
export const have = (condition, what) => { if (!condition) skip(`this version does not have it: ${what}`) }
const show = x => { try { return (JSON.stringify(x) ?? String(x)).slice(0, 200) } catch { return String(x) } }
export const check = (condition, what = 'does not hold') => { if (!condition) throw new Error(typeof what === 'string' ? what.slice(0, 400) : show(what)) }
export const equal = (got, wanted, what = 'value') => {
  if (!isDeepStrictEqual(got, wanted)) throw new Error(`${what} is ${show(got)}, not ${show(wanted)}`)
}
// Calls it, and gives what it threw; names: of the classes it may be of, any if there are none.
export const raises = async (names, call) => {
  let got
  try { got = await call() } catch (e) {
    const kinds = names.filter(n => e2b[n])
    if (!names.length || kinds.some(n => e instanceof e2b[n])) return e
    throw new Error(`threw ${e?.constructor?.name} (${String(e?.message).slice(0, 200)}), not one of ${kinds}`)
  }
  throw new Error(`threw nothing (it gave ${show(got)})`)
}
export const sleep = s => new Promise(r => setTimeout(r, s * 1000))
export const plain = id => id.split('-')[0]

export class Client {
  Sandbox = e2b.Sandbox
  tag = Math.random().toString(16).slice(2, 12)
  other = env.BOTHY_OTHER_KEY
  bad = env.BOTHY_BAD_KEY
  oci = env.BOTHY_OCI
  big = Number(env.BOTHY_BIG)
  // secure is there since 1.5 and asked for; older ones do not look at it
  make(template = 'base', options = {}) {
    return this.Sandbox.create(template, { timeoutMs: 120000, secure: true, ...options })
  }
  async sandbox(options, body) {
    const { template = 'base', ...rest } = options
    const sb = await this.make(template, rest)
    try { return await body(sb) } finally { await sb.kill().catch(() => {}) }
  }
  async items(options = {}) {
    const listed = this.Sandbox.list(options)
    if (typeof listed.nextItems !== 'function') return listed
    const got = []
    while (listed.hasNext) got.push(...await listed.nextItems())
    return got
  }
  async ids(options) { return new Set((await this.items(options)).map(one => plain(one.sandboxId))) }
  run(command, options = {}, sb = this.sb) { return sb.commands.run(command, options) }
  async out(command, options = {}, sb = this.sb) { return (await sb.commands.run(command, options)).stdout }
  start(command, options = {}, sb = this.sb) { return sb.commands.run(command, { ...options, background: true }) }
  async eventually(what, holds, seconds = 10) {
    const end = Date.now() + seconds * 1000
    for (;;) {
      const got = await holds()
      if (got) return got
      check(Date.now() < end, `${what}: not within ${seconds} s`)
      await sleep(0.05)
    }
  }
  // A URL or host that an SDK gave, on the server that is tested: [status, body].
  async fetch(url, method = 'GET', body, headers = {}) {
    const u = new URL(url.includes('://') ? url : 'http://' + url)
    const r = await led(u, method, body === undefined ? headers : { ...headers, 'content-length': Buffer.byteLength(body) }, body)
    return [r.status, await r.text()]
  }
}

export const behaviours = new Map()
export const behaviour = (name, body) => behaviours.set(name, body)
