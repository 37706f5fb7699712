// Tables of the ledger, and containers of the workspaces and of clients' documents. Account keys are off: only identities get in.
param name string
param location string
param redundancy string
param tableUsers array
param blobUsers array

var tableDataContributor = '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
var blobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
var containers = ['workspaces', 'documents']

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: name
  location: location
  kind: 'StorageV2'
  sku: {
    name: redundancy
  }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: account
  name: 'default'
  properties: {
    deleteRetentionPolicy: {
      enabled: true
      days: 7
    }
  }
}

resource places 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = [
  for container in containers: {
    parent: blobs
    name: container
    properties: {
      publicAccess: 'None'
    }
  }
]

resource tableUse 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in tableUsers: {
    name: guid(account.id, principal, tableDataContributor)
    scope: account
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', tableDataContributor)
    }
  }
]

resource blobUse 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in blobUsers: {
    name: guid(account.id, principal, blobDataContributor)
    scope: account
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
    }
  }
]

output tableUrl string = 'https://${account.name}.table.${environment().suffixes.storage}'
output blobUrl string = 'https://${account.name}.blob.${environment().suffixes.storage}'
output name string = account.name
