// An identity that one service account of the cluster may take on.
param name string
param location string

@description('OIDC issuer of the cluster.')
param issuer string

@description('system:serviceaccount:NAMESPACE:NAME')
param subject string

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: name
  location: location
}

resource trust 'Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31' = {
  parent: identity
  name: 'cluster'
  properties: {
    issuer: issuer
    subject: subject
    audiences: ['api://AzureADTokenExchange']
  }
}

output clientId string = identity.properties.clientId
output principalId string = identity.properties.principalId
