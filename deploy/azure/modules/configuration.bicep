// Protocols, tenants and settings. Access keys are off: only identities get in. It knows no address ranges: it is public
// or it is not.
param name string
param location string
param readers array

@description('Whether it is reached from outside the network.')
param public bool

var dataReader = '516239f1-63e1-4d78-a4de-a74fb236a071'

resource store 'Microsoft.AppConfiguration/configurationStores@2023-03-01' = {
  name: name
  location: location
  sku: {
    name: 'standard'
  }
  properties: {
    disableLocalAuth: true
    publicNetworkAccess: public ? 'Enabled' : 'Disabled'
  }
}

resource reading 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in readers: {
    name: guid(store.id, principal, dataReader)
    scope: store
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReader)
    }
  }
]

output id string = store.id
output name string = store.name
output endpoint string = store.properties.endpoint
