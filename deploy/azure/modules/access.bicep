// What one service may do on the bus: send replies, receive its own directives, and hear what is told to workers.
param busName string
param identityName string

@description('Topics of replies.')
param replies array

@description('Subscriptions of the service: objects with topic and subscription.')
param subscriptions array

var sender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var receiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' existing = {
  name: identityName
}

resource replyTopics 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = [
  for topic in replies: {
    name: '${busName}/${topic}'
  }
]

resource own 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' existing = [
  for each in subscriptions: {
    name: '${busName}/${each.topic}/${each.subscription}'
  }
]

resource sending 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (topic, index) in replies: {
    name: guid(busName, topic, identity.id, sender)
    scope: replyTopics[index]
    properties: {
      principalId: identity.properties.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', sender)
    }
  }
]

resource receiving 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (each, index) in subscriptions: {
    name: guid(busName, each.topic, each.subscription, identity.id, receiver)
    scope: own[index]
    properties: {
      principalId: identity.properties.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', receiver)
    }
  }
]
