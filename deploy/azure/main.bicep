// What LUCIUS stands on in Azure, in one resource group: a network, storage, Service Bus, App Configuration, a registry, a
// cluster, and an identity for each part with no more rights than it needs. See docs/how-to/azure.md.
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

@description('The platform services of the chart, by their names there. Each has an identity of its own.')
param services array = ['ocr', 'embedding', 'sis']

@description('Addresses and ranges (203.0.113.7, 198.51.100.0/24) that may reach it from outside its network. Empty: none.')
param allowedAddresses array = []

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

module network 'modules/network.bicep' = {
  name: 'network'
  params: {
    name: name
    location: location
  }
}

module cluster 'modules/cluster.bicep' = {
  name: 'cluster'
  params: {
    name: name
    location: location
    nodeSize: nodeSize
    leastNodes: leastNodes
    mostNodes: mostNodes
    allowedAddresses: allowedAddresses
    subnetId: network.outputs.machinesSubnet
  }
}

module registry 'modules/registry.bicep' = {
  name: 'registry'
  params: {
    name: unique
    location: location
    pullers: [cluster.outputs.kubeletPrincipalId]
    allowedAddresses: allowedAddresses
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

module serviceIdentities 'modules/identity.bicep' = [
  for service in services: {
    name: 'service-${service}'
    params: {
      name: '${name}-service-${service}'
      location: location
      issuer: cluster.outputs.issuer
      subject: 'system:serviceaccount:${namespace}:${release}-service-${service}'
    }
  }
]

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
    workspaceUsers: [controlPlane.outputs.principalId]
    allowedAddresses: allowedAddresses
  }
}

module serviceContainers 'modules/containers.bicep' = [
  for (service, index) in services: {
    name: 'containers-${service}'
    params: {
      accountName: storage.outputs.name
      principalId: serviceIdentities[index].outputs.principalId
    }
  }
]

module bus 'modules/bus.bicep' = {
  name: 'bus'
  params: {
    name: unique
    location: location
    tier: serviceBusTier
    messagingUnits: messagingUnits
    users: [controlPlane.outputs.principalId]
    allowedAddresses: allowedAddresses
    managers: [provision.outputs.principalId]
  }
}

module configuration 'modules/configuration.bicep' = {
  name: 'configuration'
  params: {
    name: unique
    location: location
    readers: [controlPlane.outputs.principalId, provision.outputs.principalId]
    public: !empty(allowedAddresses)
  }
}

module tableEndpoint 'modules/endpoint.bicep' = {
  name: 'table-endpoint'
  params: {
    name: name
    location: location
    networkId: network.outputs.id
    subnetId: network.outputs.endpointsSubnet
    target: storage.outputs.id
    part: 'table'
    zone: 'privatelink.table.${environment().suffixes.storage}'
  }
}

module blobEndpoint 'modules/endpoint.bicep' = {
  name: 'blob-endpoint'
  params: {
    name: name
    location: location
    networkId: network.outputs.id
    subnetId: network.outputs.endpointsSubnet
    target: storage.outputs.id
    part: 'blob'
    zone: 'privatelink.blob.${environment().suffixes.storage}'
  }
}

module busEndpoint 'modules/endpoint.bicep' = if (serviceBusTier == 'Premium') {
  name: 'bus-endpoint'
  params: {
    name: name
    location: location
    networkId: network.outputs.id
    subnetId: network.outputs.endpointsSubnet
    target: bus.outputs.id
    part: 'namespace'
    zone: 'privatelink.servicebus.windows.net'
  }
}

module configurationEndpoint 'modules/endpoint.bicep' = {
  name: 'configuration-endpoint'
  params: {
    name: name
    location: location
    networkId: network.outputs.id
    subnetId: network.outputs.endpointsSubnet
    target: configuration.outputs.id
    part: 'configurationStores'
    zone: 'privatelink.azconfig.io'
  }
}

module registryEndpoint 'modules/endpoint.bicep' = {
  name: 'registry-endpoint'
  params: {
    name: name
    location: location
    networkId: network.outputs.id
    subnetId: network.outputs.endpointsSubnet
    target: registry.outputs.id
    part: 'registry'
    zone: 'privatelink${environment().suffixes.acrLoginServer}'
  }
}

output clusterName string = cluster.outputs.name
output registryName string = registry.outputs.name
output imageRepository string = '${registry.outputs.loginServer}/lucius'
output storageName string = storage.outputs.name
output tableUrl string = storage.outputs.tableUrl
output blobUrl string = storage.outputs.blobUrl
output busName string = bus.outputs.name
output busNamespace string = bus.outputs.host
output configurationName string = configuration.outputs.name
output configurationEndpoint string = configuration.outputs.endpoint
output controlPlaneClientId string = controlPlane.outputs.clientId
output serviceClientIds array = [
  for (service, index) in services: {
    name: service
    clientId: serviceIdentities[index].outputs.clientId
  }
]
output provisionClientId string = provision.outputs.clientId
