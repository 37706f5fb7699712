// The cluster: workload identity, KEDA as an add-on, network policies in force, local accounts off. Without address ranges
// its API is reached from inside the network alone.
param name string
param location string
param nodeSize string
param leastNodes int
param mostNodes int

@description('Address ranges that may reach its API from outside the network.')
param allowedAddresses array

@description('Subnet of its machines.')
param subnetId string

var networkContributor = '4d97b98b-1d4f-4787-a291-c67834d212e7'

resource cluster 'Microsoft.ContainerService/managedClusters@2024-05-01' = {
  name: name
  location: location
  sku: {
    name: 'Base'
    tier: 'Standard'
  }
  identity: {
    type: 'SystemAssigned'
  }
  properties: {
    dnsPrefix: name
    enableRBAC: true
    disableLocalAccounts: true
    apiServerAccessProfile: {
      enablePrivateCluster: empty(allowedAddresses)
      authorizedIPRanges: allowedAddresses
    }
    aadProfile: {
      managed: true
      enableAzureRBAC: true
    }
    oidcIssuerProfile: {
      enabled: true
    }
    securityProfile: {
      workloadIdentity: {
        enabled: true
      }
    }
    workloadAutoScalerProfile: {
      keda: {
        enabled: true
      }
    }
    networkProfile: {
      networkPlugin: 'azure'
      networkPluginMode: 'overlay'
      networkPolicy: 'cilium'
      networkDataplane: 'cilium'
    }
    agentPoolProfiles: [
      {
        name: 'system'
        mode: 'System'
        osType: 'Linux'
        vmSize: nodeSize
        vnetSubnetID: subnetId
        count: leastNodes
        minCount: leastNodes
        maxCount: mostNodes
        enableAutoScaling: true
      }
    ]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2023-11-01' existing = {
  name: split(subnetId, '/')[8]
}

resource machines 'Microsoft.Network/virtualNetworks/subnets@2023-11-01' existing = {
  parent: network
  name: split(subnetId, '/')[10]
}

resource attaching 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(subnetId, name, networkContributor)
  scope: machines
  properties: {
    principalId: cluster.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', networkContributor)
  }
}

output name string = cluster.name
output issuer string = cluster.properties.oidcIssuerProfile.issuerURL
output kubeletPrincipalId string = cluster.properties.identityProfile.kubeletidentity.objectId
