// The network: the machines of the cluster, and the private endpoints of what LUCIUS stands on.
param name string
param location string

resource network 'Microsoft.Network/virtualNetworks@2023-11-01' = {
  name: name
  location: location
  properties: {
    addressSpace: {
      addressPrefixes: ['10.42.0.0/16']
    }
    subnets: [
      {
        name: 'machines'
        properties: {
          addressPrefix: '10.42.0.0/20'
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: '10.42.16.0/24'
        }
      }
    ]
  }
}

output id string = network.id
output name string = network.name
output machinesSubnet string = '${network.id}/subnets/machines'
output endpointsSubnet string = '${network.id}/subnets/endpoints'
