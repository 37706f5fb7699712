// Rights of the services on the bus, for topics and subscriptions that `lucius bus provision` has made. Deploy it after
// the installation, and again when a service or a topology is added. See docs/how-to/azure.md.
targetScope = 'resourceGroup'

@description('First part of every name, as in main.bicep.')
param name string = 'lucius'

@description('The Service Bus namespace, without its domain: the output busName of main.bicep.')
param busName string

@description('The platform services, as in main.bicep.')
param services array = ['ocr', 'embedding', 'sis']

@description('LUCIUS_LANE_TOPOLOGY: bus.topology of the chart.')
@allowed(['shared', 'isolated', 'filtered'])
param topology string = 'shared'

@description('LUCIUS_SERVICEBUS_PREFIX, where it is set.')
param prefix string = ''

var lanes = 16
var modes = topology == 'shared' ? ['default'] : ['default', 'burst']
var places = range(0, lanes * length(modes))
var replies = [for lane in range(0, lanes): '${prefix}global-bus-replies-p${lane}']
var notices = {
  topic: '${prefix}global-bus-notices'
  subscription: 'workers'
}

module access 'modules/access.bicep' = [
  for service in services: {
    name: 'access-${service}'
    params: {
      busName: busName
      identityName: '${name}-service-${service}'
      replies: replies
      subscriptions: concat(
        [notices],
        map(places, place => {
          topic: '${prefix}global-${topology == 'isolated' ? modes[place / lanes] : 'bus'}-p${place % lanes}'
          subscription: topology == 'filtered' ? '${service}-${modes[place / lanes]}' : service
        })
      )
    }
  }
]
