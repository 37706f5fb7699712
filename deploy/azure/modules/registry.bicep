// The registry of the image, and who may pull from it.
param name string
param location string
param pullers array

var acrPull = '7f951dda-4ed3-4680-a7ca-43fe172d538d'

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' = {
  name: name
  location: location
  sku: {
    name: 'Standard'
  }
  properties: {
    adminUserEnabled: false
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

output name string = registry.name
output loginServer string = registry.properties.loginServer
