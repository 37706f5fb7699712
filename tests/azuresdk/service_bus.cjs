// Microsoft's SDK for JavaScript against the stand-in for Service Bus: node service_bus.cjs CONNECTION
const assert = require("node:assert/strict");
const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");

const ONE = { maxWaitTimeInMs: 20000 };
const NONE = { maxWaitTimeInMs: 300 };

async function all(each) {
  const found = [];
  for await (const one of each) found.push(one);
  return found;
}

// The SDK knows no management without TLS.
function administrator(connection) {
  const made = new ServiceBusAdministrationClient(connection, { retryOptions: { maxRetries: 0 } });
  const plain = (request, next) => {
    request.url = request.url.replace("https:", "http:");
    request.allowInsecureConnection = true;
    return next(request);
  };
  made.pipeline.addPolicy({ name: "plain", sendRequest: plain }, { afterPhase: "Sign" });
  return made;
}

async function administration(admin) {
  const refused = (code, statusCode) => ({ code, statusCode });
  const topic = await admin.createTopic("t", {
    requiresDuplicateDetection: true, duplicateDetectionHistoryTimeWindow: "PT5M",
  });
  assert.deepEqual([topic.name, topic.requiresDuplicateDetection, topic.status], ["t", true, "Active"]);
  await assert.rejects(admin.createTopic("T"), refused("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(admin.getTopic("none"), refused("MessageEntityNotFoundError", 404));
  assert.deepEqual([await admin.topicExists("t"), await admin.topicExists("none")], [true, false]);

  const made = await admin.createSubscription("t", "w", {
    lockDuration: "PT30S", maxDeliveryCount: 3, deadLetteringOnMessageExpiration: true,
  });
  assert.deepEqual([made.topicName, made.subscriptionName, made.maxDeliveryCount], ["t", "w", 3]);
  assert.deepEqual([made.requiresSession, made.deadLetteringOnMessageExpiration], [false, true]);
  const changed = await admin.updateSubscription({ ...made, maxDeliveryCount: 2 });
  assert.equal(changed.maxDeliveryCount, 2);
  await assert.rejects(admin.createSubscription("t", "x", { lockDuration: "PT6M" }), { statusCode: 400 });
  assert.deepEqual((await all(admin.listSubscriptions("t"))).map((each) => each.subscriptionName), ["w"]);
  assert.equal((await admin.getTopicRuntimeProperties("t")).subscriptionCount, 1);

  const correlated = { subject: "s", applicationProperties: { x: 1, y: "z", yes: true } };
  await admin.createRule("t", "w", "only", { sqlExpression: "kind = 'a'" });
  await admin.createRule("t", "w", "correlated", correlated);
  const rule = await admin.getRule("t", "w", "correlated");
  assert.deepEqual(rule.filter.applicationProperties, correlated.applicationProperties);
  assert.equal(rule.filter.subject, "s");
  await assert.rejects(admin.createRule("t", "w", "bad", { sqlExpression: "kind = =" }), { statusCode: 400 });
  await admin.deleteRule("t", "w", "$Default");
  assert.deepEqual((await all(admin.listRules("t", "w"))).map((each) => each.name), ["only", "correlated"]);

  for (let n = 0; n < 5; n++) await admin.createTopic(`many-${n}`);
  const pages = await all(admin.listTopics().byPage({ maxPageSize: 4 }));
  assert.deepEqual(pages.map((each) => each.length), [4, 2]);
  for (let n = 0; n < 5; n++) await admin.deleteTopic(`many-${n}`);
  assert.deepEqual((await all(admin.listTopics())).map((each) => each.name), ["t"]);
}

async function messages(client, admin) {
  const sender = client.createSender("t");
  const receiver = client.createReceiver("t", "w");
  const next = async (from = receiver) => (await from.receiveMessages(1, ONE))[0];

  // Rules choose, duplicates are dropped, and what is received is what was sent.
  await sender.sendMessages([
    { body: { n: 1 }, messageId: "1", applicationProperties: { kind: "a" }, contentType: "application/json" },
    { body: "two", messageId: "2", subject: "s", applicationProperties: { x: 1, y: "z", yes: true } },
    { body: "nobody's", messageId: "3", applicationProperties: { kind: "b" } },
    { body: "again", messageId: "1", applicationProperties: { kind: "a" } },
  ]);
  const first = await next();
  assert.deepEqual([first.messageId, first.body, first.contentType], ["1", { n: 1 }, "application/json"]);
  assert.deepEqual([first.deliveryCount, first.applicationProperties], [0, { kind: "a" }]);
  const locked = first.lockedUntilUtc;
  assert.ok(locked - first.enqueuedTimeUtc > 25000);
  assert.ok((await receiver.renewMessageLock(first)) >= locked);

  // Abandon gives it back, with properties; after the last delivery it is a dead letter.
  await receiver.abandonMessage(first, { seen: 1 });
  const again = await next();
  assert.deepEqual([again.messageId, again.deliveryCount, again.applicationProperties.seen], ["1", 1, 1]);
  await receiver.abandonMessage(again);
  const second = await next();
  assert.equal(second.messageId, "2");
  await receiver.deadLetterMessage(second, {
    deadLetterReason: "BAD", deadLetterErrorDescription: "why", more: "yes",
  });
  const dead = client.createReceiver("t", "w", { subQueueType: "deadLetter" });
  const letters = [await next(dead), await next(dead)];
  assert.deepEqual(letters.map((each) => [each.messageId, each.deadLetterReason]), [
    ["1", "MaxDeliveryCountExceeded"], ["2", "BAD"],
  ]);
  assert.equal(letters[1].deadLetterErrorDescription, "why");
  assert.equal(letters[1].applicationProperties.more, "yes");
  assert.equal((await admin.getSubscriptionRuntimeProperties("t", "w")).deadLetterMessageCount, 2);
  for (const each of letters) await dead.completeMessage(each);
  assert.deepEqual(await receiver.receiveMessages(1, NONE), [], "3 is for no rule, and 1 came once");

  // What is settled is settled.
  const kind = { applicationProperties: { kind: "a" } };
  await sender.sendMessages({ body: "c", messageId: "c", ...kind });
  assert.deepEqual((await receiver.peekMessages(5)).map((each) => each.messageId), ["c"]);
  const done = await next();
  await receiver.completeMessage(done);
  await assert.rejects(receiver.completeMessage(done));

  // Batches, and receiving without locks.
  const batch = await sender.createMessageBatch();
  assert.equal(batch.maxSizeInBytes, 262144);
  for (let n = 0; n < 50; n++) assert.ok(batch.tryAddMessage({ body: n, messageId: `b${n}`, ...kind }));
  await sender.sendMessages(batch);
  const taker = client.createReceiver("t", "w", { receiveMode: "receiveAndDelete" });
  const taken = [];
  while (taken.length < 50) taken.push(...(await taker.receiveMessages(50, ONE)));
  assert.deepEqual(taken.map((each) => each.body), [...Array(50).keys()]);
  await taker.close();

  // A subscription that is pushed to.
  await sender.sendMessages({ body: "p", messageId: "p", ...kind });
  const pushed = await new Promise((resolve, reject) => {
    receiver.subscribe({
      processMessage: async (each) => resolve(each.messageId),
      processError: async (each) => reject(each.error),
    });
  });
  assert.equal(pushed, "p");

  // Rules over AMQP, errors.
  const rules = await all(client.createRuleManager("t", "w").listRules());
  assert.deepEqual(rules.map((each) => each.name), ["only", "correlated"]);
  assert.equal(rules[0].filter.sqlExpression, "kind = 'a'");
  assert.deepEqual(rules[1].filter.applicationProperties, { x: 1, y: "z", yes: true });
  const nowhere = client.createSender("none").sendMessages({ body: 1 });
  await assert.rejects(nowhere, { code: "MessagingEntityNotFound" });
  await assert.rejects(sender.sendMessages({ body: "z".repeat(300000) }), { code: "MessageSizeExceeded" });
}

async function main(connection) {
  const admin = administrator(connection);
  const client = new ServiceBusClient(connection, { retryOptions: { maxRetries: 0 } });
  await administration(admin);
  await messages(client, admin);
  await client.close();
  await admin.deleteSubscription("t", "w");
  await admin.deleteTopic("t");
  assert.equal(await admin.topicExists("t"), false);
  console.log("all of it");
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
