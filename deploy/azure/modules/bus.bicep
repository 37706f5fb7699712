// The namespace. Topics, subscriptions and rules are made by `lucius bus provision`, as `managers`. Services have rights
// on some of them alone: see access.bicep. Standard has neither address ranges nor private endpoints: it is public.
param name string
param location string
param tier string
param messagingUnits int
param users array
param managers array

@description('Address ranges that may reach it from outside the network.')
param allowedAddresses array

var sender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var receiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var owner = '090c5cfd-751d-490a-894a-3ce6f1109419'

resource bus 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: name
  location: location
  sku: {
    name: tier
    tier: tier
    capacity: tier == 'Premium' ? messagingUnits : null
  }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: tier == 'Premium' && empty(allowedAddresses) ? 'Disabled' : 'Enabled'
    zoneRedundant: tier == 'Premium'
  }
}

resource rules 'Microsoft.ServiceBus/namespaces/networkRuleSets@2024-01-01' = if (tier == 'Premium') {
  parent: bus
  name: 'default'
  properties: {
    defaultAction: 'Deny'
    publicNetworkAccess: empty(allowedAddresses) ? 'Disabled' : 'Enabled'
    ipRules: [
      for address in allowedAddresses: {
        ipMask: address
        action: 'Allow'
      }
    ]
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

output id string = bus.id
output name string = bus.name
output host string = '${bus.name}.servicebus.windows.net'
