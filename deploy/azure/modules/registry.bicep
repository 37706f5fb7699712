// The registry of the image, and who may pull from it.
param name string
param location string
param pullers array

@description('Address ranges that may reach it from outside the network.')
param allowedAddresses array

var acrPull = '7f951dda-4ed3-4680-a7ca-43fe172d538d'

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' = {
  name: name
  location: location
  sku: {
    name: 'Premium' // the others have neither address ranges nor private endpoints
  }
  properties: {
    adminUserEnabled: false
    publicNetworkAccess: empty(allowedAddresses) ? 'Disabled' : 'Enabled'
    networkRuleSet: {
      defaultAction: 'Deny'
      ipRules: [
        for address in allowedAddresses: {
          value: address
          action: 'Allow'
        }
      ]
    }
  }
}

resource pulling 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in pullers: {
    name: guid(registry.id, principal, acrPull)
    scope: registry
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', acrPull)
    }
  }
]

output id string = registry.id
output name string = registry.name
output loginServer string = registry.properties.loginServer
