// E2B's JavaScript SDK as a subject of bench e2b; as e2b_client.py. node e2b_client.mjs DIRECTORY-OF-node_modules
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const { Sandbox } = createRequire(process.argv[2] + '/')('e2b')

async function run(sandbox) {
  const said = (await sandbox.commands.run('echo here')).stdout
  if (said !== 'here\n') throw new Error(`it said ${JSON.stringify(said)}`)
}

async function one() {
  const began = process.hrtime.bigint()
  const sandbox = await Sandbox.create()
  try {
    await run(sandbox)
    return { ns: [Number(process.hrtime.bigint() - began)], failed: [] }
  } finally {
    await sandbox.kill()
  }
}

async function burst(count) {
  const began = process.hrtime.bigint()
  const made = []
  const taken = []
  const ends = await Promise.allSettled(Array.from({ length: count }, async () => {
    const sandbox = await Sandbox.create()
    made.push(sandbox)
    await run(sandbox)
    taken.push(Number(process.hrtime.bigint() - began))
  }))
  await Promise.allSettled(made.map(sandbox => sandbox.kill()))
  return { ns: taken, failed: ends.filter(e => e.status === 'rejected').map(e => String(e.reason)) }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [word, count] = line.split(' ')
  let told
  try {
    told = word === 'one' ? await one() : await burst(Number(count))
  } catch (e) { // whatever it is, it is counted
    told = { ns: [], failed: [String(e)] }
  }
  console.log(JSON.stringify(told))
}
process.exit(0) // its connections would keep it
