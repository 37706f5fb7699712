// A private endpoint of one resource, and the zone that leads its name there for everyone in the network.
param name string
param location string
param networkId string
param subnetId string
param target string

@description('Which part of the resource: table, blob, namespace, configurationStores or registry.')
param part string

@description('Zone of the names of such endpoints.')
param zone string

resource endpoint 'Microsoft.Network/privateEndpoints@2023-11-01' = {
  name: '${name}-${part}'
  location: location
  properties: {
    subnet: {
      id: subnetId
    }
    privateLinkServiceConnections: [
      {
        name: part
        properties: {
          privateLinkServiceId: target
          groupIds: [part]
        }
      }
    ]
  }
}

resource names 'Microsoft.Network/privateDnsZones@2020-06-01' = {
  name: zone
  location: 'global'
}

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2020-06-01' = {
  parent: names
  name: name
  location: 'global'
  properties: {
    registrationEnabled: false
    virtualNetwork: {
      id: networkId
    }
  }
}

resource entry 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2023-11-01' = {
  parent: endpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: part
        properties: {
          privateDnsZoneId: names.id
        }
      }
    ]
  }
}
