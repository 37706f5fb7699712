// Microsoft's SDK for JavaScript against the stand-in for App Configuration: node app_configuration.cjs CONNECTION
const assert = require("node:assert/strict");
const { AppConfigurationClient } = require("@azure/app-configuration");

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

async function main(connection) {
  const client = new AppConfigurationClient(connection, {
    allowInsecureConnection: true,
    retryOptions: { maxRetries: 0 },
  });
  const refused = (statusCode) => ({ statusCode });

  // An entry is what was written, by key and label.
  const id = { key: "a/b c", label: "prod" };
  const written = await client.setConfigurationSetting({
    ...id, value: "1", contentType: "text/plain", tags: { team: "blue" },
  });
  const read = await client.getConfigurationSetting(id);
  for (const each of [written, read]) {
    assert.deepEqual([each.key, each.label, each.value], ["a/b c", "prod", "1"]);
    assert.deepEqual([each.contentType, each.tags], ["text/plain", { team: "blue" }]);
    assert.equal(each.isReadOnly, false);
    assert.ok(each.lastModified instanceof Date);
  }
  await assert.rejects(client.getConfigurationSetting({ key: "a/b c" }), refused(404));

  // Conditional requests.
  await assert.rejects(client.addConfigurationSetting({ ...id, value: "2" }), refused(412));
  const same = await client.getConfigurationSetting(read, { onlyIfChanged: true });
  assert.deepEqual([same.statusCode, same.value], [304, undefined]);
  const second = await client.setConfigurationSetting({ ...read, value: "2" }, { onlyIfUnchanged: true });
  assert.notEqual(second.etag, read.etag);
  assert.equal((await client.getConfigurationSetting(read, { onlyIfChanged: true })).value, "2");
  const stale = { ...read, value: "3" };
  await assert.rejects(client.setConfigurationSetting(stale, { onlyIfUnchanged: true }), refused(412));
  await assert.rejects(client.deleteConfigurationSetting(read, { onlyIfUnchanged: true }), refused(412));

  // Deleting; what is not there is no error.
  assert.equal((await client.deleteConfigurationSetting(second, { onlyIfUnchanged: true })).statusCode, 200);
  assert.equal((await client.deleteConfigurationSetting(id)).statusCode, 204);

  // Filters and pages.
  for (let n = 0; n < 230; n++) await client.addConfigurationSetting({ key: `page:${n}`, value: `${n}` });
  await client.addConfigurationSetting({ key: "page:0", label: "prod", value: "other" });
  await client.addConfigurationSetting({ key: "x,y*", value: "odd" });
  const pages = await all(client.listConfigurationSettings({ keyFilter: "page:*", labelFilter: "\0" }).byPage());
  assert.deepEqual(pages.map((each) => each.items.length), [100, 100, 30]);
  assert.equal(new Set(pages.flatMap((each) => each.items.map((item) => item.key))).size, 230);
  const labelled = await all(client.listConfigurationSettings({ labelFilter: "prod" }));
  assert.deepEqual(labelled.map((each) => each.value), ["other"]);
  const odd = await all(client.listConfigurationSettings({ keyFilter: "x\\,y\\*" }));
  assert.deepEqual(odd.map((each) => each.value), ["odd"]);
  const some = await all(client.listConfigurationSettings({ keyFilter: "page:0", fields: ["key"] }));
  assert.deepEqual(some.map((each) => [each.key, each.value]), [["page:0", undefined], ["page:0", undefined]]);

  // Somebody without the secret.
  const stranger = connection.replace(/Secret=.*/, `Secret=${Buffer.from("wrong").toString("base64")}`);
  const other = new AppConfigurationClient(stranger, { allowInsecureConnection: true });
  await assert.rejects(other.getConfigurationSetting({ key: "page:0" }), refused(401));
  console.log("all of it");
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
