// What one service may do in the storage account: work in the workspaces of jobs, and read and write documents of clients.
param accountName string
param principalId string

var blobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

resource workspaces 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' existing = {
  name: '${accountName}/default/workspaces'
}

resource documents 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' existing = {
  name: '${accountName}/default/documents'
}

resource workspaceUse 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(workspaces.id, principalId, blobDataContributor)
  scope: workspaces
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
  }
}

resource documentUse 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(documents.id, principalId, blobDataContributor)
  scope: documents
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
  }
}
