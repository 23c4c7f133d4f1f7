# graphite-web in front of Plumbago: its own store is empty, everything comes from the remote.
CLUSTER_SERVERS = ["127.0.0.1:8080"]
STORAGE_FINDERS = ("graphite.finders.remote.RemoteFinder",)
REMOTE_STORE_USE_POST = True
