// What LUCIUS stands on in Azure, in one resource group: storage, Service Bus, App Configuration, a registry, a
// cluster, and three identities with no more rights than they need. See docs/how-to/azure.md.
targetScope = 'resourceGroup'

@description('First part of every name. Lower-case letters and digits, because storage accounts allow no others.')
@minLength(3)
@maxLength(11)
param name string = 'lucius'

@description('Region of everything.')
param location string = resourceGroup().location

@description('Namespace of the cluster that the chart is installed in.')
param namespace string = 'lucius'

@description('Name of the Helm release; the service accounts begin with it.')
param release string = 'lucius'

@description('Standard is for trials: docs/reference/scale.md says how many jobs a second each carries.')
@allowed(['Standard', 'Premium'])
param serviceBusTier string = 'Premium'

@description('Messaging units of Premium.')
@allowed([1, 2, 4, 8, 16])
param messagingUnits int = 1

@description('Redundancy of the storage account.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GZRS'])
param storageRedundancy string = 'Standard_ZRS'

@description('Size of the machines of the cluster.')
param nodeSize string = 'Standard_D4s_v5'

@description('Fewest machines of the cluster.')
@minValue(2)
param leastNodes int = 3

@description('Most machines of the cluster.')
param mostNodes int = 12

var unique = '${name}${uniqueString(resourceGroup().id)}'

module cluster 'modules/cluster.bicep' = {
  name: 'cluster'
  params: {
    name: name
    location: location
    nodeSize: nodeSize
    leastNodes: leastNodes
    mostNodes: mostNodes
  }
}

module registry 'modules/registry.bicep' = {
  name: 'registry'
  params: {
    name: unique
    location: location
    pullers: [cluster.outputs.kubeletPrincipalId]
  }
}

module controlPlane 'modules/identity.bicep' = {
  name: 'control-plane'
  params: {
    name: '${name}-control-plane'
    location: location
    issuer: cluster.outputs.issuer
    subject: 'system:serviceaccount:${namespace}:${release}-control-plane'
  }
}

module services 'modules/identity.bicep' = {
  name: 'services'
  params: {
    name: '${name}-services'
    location: location
    issuer: cluster.outputs.issuer
    subject: 'system:serviceaccount:${namespace}:${release}-services'
  }
}

module provision 'modules/identity.bicep' = {
  name: 'provision'
  params: {
    name: '${name}-provision'
    location: location
    issuer: cluster.outputs.issuer
    subject: 'system:serviceaccount:${namespace}:${release}-provision'
  }
}

module storage 'modules/storage.bicep' = {
  name: 'storage'
  params: {
    name: take(unique, 24)
    location: location
    redundancy: storageRedundancy
    tableUsers: [controlPlane.outputs.principalId]
    blobUsers: [controlPlane.outputs.principalId, services.outputs.principalId]
  }
}

module bus 'modules/bus.bicep' = {
  name: 'bus'
  params: {
    name: unique
    location: location
    tier: serviceBusTier
    messagingUnits: messagingUnits
    users: [controlPlane.outputs.principalId, services.outputs.principalId]
    managers: [provision.outputs.principalId]
  }
}

module configuration 'modules/configuration.bicep' = {
  name: 'configuration'
  params: {
    name: unique
    location: location
    readers: [controlPlane.outputs.principalId, provision.outputs.principalId]
  }
}

output clusterName string = cluster.outputs.name
output registryName string = registry.outputs.name
output imageRepository string = '${registry.outputs.loginServer}/lucius'
output storageName string = storage.outputs.name
output tableUrl string = storage.outputs.tableUrl
output blobUrl string = storage.outputs.blobUrl
output busNamespace string = bus.outputs.host
output configurationName string = configuration.outputs.name
output configurationEndpoint string = configuration.outputs.endpoint
output controlPlaneClientId string = controlPlane.outputs.clientId
output servicesClientId string = services.outputs.clientId
output provisionClientId string = provision.outputs.clientId
