// Servers inside, by the host that getHost gives.
import { behaviour, check, equal, have } from './js_lib.mjs'

const SERVER = port => `mkdir -p /tmp/www && cd /tmp/www && echo served >index.html && exec python3 -m http.server ${port} --bind 127.0.0.1`
const tokens = sb => {
  have(sb.trafficAccessToken ?? sb.envdAccessToken, 'a token to be shown')
  return sb.trafficAccessToken ? { 'e2b-traffic-access-token': sb.trafficAccessToken } : { 'x-access-token': sb.envdAccessToken }
}
behaviour('get_host', async t => equal(t.sb.getHost(8000), `8000-${t.sb.sandboxId}.sbx.test`))
behaviour('port_served', async t => {
  tokens(t.sb)
  const handle = await t.start(SERVER(8123))
  try {
    await t.eventually('the server inside answers', async () => {
      const [status, body] = await t.fetch(t.sb.getHost(8123), 'GET', undefined, tokens(t.sb))
      return status === 200 && body === 'served\n'
    }, 15)
    const [status] = await t.fetch(t.sb.getHost(8123))
    check([401, 403].includes(status), `status without a token is ${status}`)
  } finally { await handle.kill() }
})
behaviour('port_closed', async t => equal((await t.fetch(t.sb.getHost(8999), 'GET', undefined, tokens(t.sb)))[0], 502, 'status'))
behaviour('port_of_killed', async t => {
  const sb = await t.make()
  await sb.kill()
  const [status, body] = await t.fetch(sb.getHost(8000), 'GET', undefined, tokens(sb))
  equal(status, 502, 'status')
  check(body.includes('was not found'), body)
})
