// Tables of the ledger, and containers of the workspaces and of clients' documents. Account keys are off: only identities get in.
param name string
param location string
param redundancy string
param tableUsers array

@description('Who works in the workspaces of jobs. Services have rights of their own: see containers.bicep.')
param workspaceUsers array

@description('Address ranges that may reach it from outside the network.')
param allowedAddresses array

var tableDataContributor = '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
var blobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

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
    publicNetworkAccess: empty(allowedAddresses) ? 'Disabled' : 'Enabled'
    networkAcls: {
      defaultAction: 'Deny'
      bypass: 'None'
      ipRules: [
        for address in allowedAddresses: {
          value: address
          action: 'Allow'
        }
      ]
    }
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

resource workspaces 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobs
  name: 'workspaces'
  properties: {
    publicAccess: 'None'
  }
}

resource documents 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobs
  name: 'documents'
  properties: {
    publicAccess: 'None'
  }
}

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

resource workspaceUse 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principal in workspaceUsers: {
    name: guid(workspaces.id, principal, blobDataContributor)
    scope: workspaces
    properties: {
      principalId: principal
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
    }
  }
]

output tableUrl string = 'https://${account.name}.table.${environment().suffixes.storage}'
output blobUrl string = 'https://${account.name}.blob.${environment().suffixes.storage}'
output id string = account.id
output name string = account.name
