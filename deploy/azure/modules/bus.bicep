// The namespace. Topics, subscriptions and rules are made by `lucius bus provision`, as `managers`.
param name string
param location string
param tier string
param messagingUnits int
param users array
param managers array

var sender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var receiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var owner = '090c5cfd-751d-490a-894a-3ce6f1109419'

resource bus 'Microsoft.ServiceBus/namespaces@2021-11-01' = {
  name: name
  location: location
  sku: {
    name: tier
    tier: tier
    capacity: tier == 'Premium' ? messagingUnits : null
  }
  properties: {
    disableLocalAuth: true
    zoneRedundant: tier == 'Premium'
  }
}

resource sending 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in users: {
    name: guid(bus.id, principal, sender)
    scope: bus
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', sender)
    }
  }
]

resource receiving 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in users: {
    name: guid(bus.id, principal, receiver)
    scope: bus
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', receiver)
    }
  }
]

resource managing 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in managers: {
    name: guid(bus.id, principal, owner)
    scope: bus
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', owner)
    }
  }
]

output host string = '${bus.name}.servicebus.windows.net'
