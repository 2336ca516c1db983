"""Keys of Apache's configuration files that are known by name and have no effect here, with the reason.

They are those of BrokerConfig, MessageStoreConfig, AuthConfig, NamesrvConfig, ControllerConfig, NettyServerConfig and
NettyClientConfig in 4.9.4 and 5.5.0, as far as neither a server's config class nor, for the broker, its own table has them.
"""

from typing import Final

_BROKER: Final = {
    "metrics have keys of their own (metricsPort)": """
        accountStatsEnable accountStatsPrintZeroValues enableConnectionMetrics enableLagAndDlqMetrics
        enableLmqStats enableMessageStoreMetrics enablePopMetrics enableRemotingMetrics enableRequestMetrics
        enableScheduleMessageStats enableStatsMetrics enableTransactionMetrics estimateAccumulation
        liteLagCountMetricsEnable liteLagLatencyMetricsEnable maxStatsIdleTimeInMinutes
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
        metricsExportBatchMaxDataPoints metricsExporterType metricsGrpcExporterHeader metricsGrpcExporterTarget
        metricsInDelta metricsLabel metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
        sampleCountThreshold sampleSteps timerEnableCheckMetrics timerMetricSmallThreshold
        transactionMetricFlushInterval""",
    "one thread does the work; there are no thread pools or request queues": """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolQueueCapacity asyncSendEnable
        batchDispatchRequestThreadPoolNums compactionThreadNum disableCallbackExecutor disableNettyWorkerGroup
        dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread enableAsyncReput
        enableBuildConsumeQueueConcurrently enableFastChannelEventProcess litePullThreadPoolQueueCapacity
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests
        putThreadPoolQueueCapacity recoverConcurrently recoverThreadPoolNums serverNettyWorkerGroupEnable
        timerGetMessageThreadNum timerPutMessageThreadNum timerReputServiceCorePoolSize
        timerReputServiceMaxPoolSize timerReputServiceQueueCapacity transactionCheckRocksdbCoreThreads
        transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity waitTimeMillsInAckQueue
        waitTimeMillsInAdminBrokerQueue waitTimeMillsInLitePullQueue""",
    "users and policies are kept in config/auth.json of the store, and are all in memory": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath authenticationMetadataProvider
        authenticationProvider authenticationStrategy authorizationMetadataProvider authorizationProvider
        authorizationStrategy statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond
        userCacheMaxNum userCacheRefreshSecond""",
    "the accounts of plain_acl.yml do not become users": "migrateAuthFromV1Enabled",
    "checkpoints and acks of pop consumption are kept in the log only": """
        appendAckAsync appendCkAsync enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold enableSkipLongAwaitingAck
        maxMessageFilterNumForNotification maxPopPollingSize popCkMaxBufferSize popCkOffsetMaxQueueSize
        popCkStayBufferTime popCkStayBufferTimeOut popInflightMessageThreshold
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
        popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent
        reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime skipWhenCKRePutReachMaxTimes
        useMessageFilterForNotification""",
    "RocksDB is not used": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin combineCQEnableCheckSelf
        combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
        combineCQUseRocksdbForLmq configManagerVersion enableRocksDBLog indexRocksDBEnable
        iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays memTableFlushIntervalMs
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog
        realTimePersistRocksDBConfig replicasPerDiskPartition rocksdbCQDoubleWriteEnable rocksdbCompressionType
        rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec
        timerRecallToTimeWheelEnable timerRecallToTimelineEnable timerRocksDBEnable timerRocksDBPrecisionMs
        timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
        timerRocksDBTimeExpiredMaxTps transRocksDBEnable useSeparateStorePathForRocksdbCQ
        useSingleRocksDBForAllConfigs""",
    "consumer offsets are kept until their group or topic is deleted": """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond combineAssignOffsetCQType
        enableBroadcastOffsetStore enableCleanExpiredOffset flushConsumerOffsetHistoryInterval
        persistConsumerOffsetIncrementally""",
    "there is no broker container": "brokerConfigPath clusterName configBlackList configName inBrokerContainer",
    "the controller is not supported; roles are fixed": """
        brokerElectionPriority enableAutoInSyncReplicas haMaxGapNotInSync readUnCommitted storePathBrokerIdentity
        storePathDLedgerCommitLog syncFromLastFile totalReplicas""",
    "cold data is read like any other": """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable
        globalColdReadThreshold timerColdDataCheckIntervalMs usePIDColdCtrStrategy""",
    "clients expire after two minutes of silence": """
        channelExpiredTimeout cleanOfflineBrokerInterval subscriptionExpiredTimeout""",
    "use notifyConsumerIdsChangedEnable instead": "realTimeNotifyConsumerChange",
    "connections to other servers have no such settings": """
        channelNotActiveInterval clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds
        clientCloseSocketIfTimeout clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
        clientSocketRcvBufSize clientSocketSndBufSize connectTimeoutMillis enableReconnectForGoAway forwardTimeout
        maxReconnectIntervalTimeSeconds socksProxyConfig""",
    "recovery has no settings: checkpoint, log and queues determine it": """
        checkCommitLogOffsetOnRecover commitLogRecoverMaxNum correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover maxChecksumRange maxRecoveryCommitlogFiles
        recheckReputOffsetFromCq travelCqFileNumWhenGetMessage""",
    "mappedMemoryResidentMax determines when mapped files are released": """
        cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum mappedFileSwapEnable""",
    "there are no commercial statistics": """
        commercialBaseCount commercialBigCount commercialSizePerMsg commercialTimerCount commercialTransCount""",
    "batch and compaction topics are not supported": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal enableCompaction
        mapperFileSizeBatchConsumeQueue maxOffsetMapSize searchBcqByCacheEnable""",
    "a registration sends the whole topic table": """
        consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep enableRegisterProducer
        enableSingleTopicRegister enableSplitMetadata enableSplitRegistration splitMetadataSize
        splitRegistrationSize""",
    "lite topics are not supported": """
        enableLiteEventMode enableLitePopLog liteEventCheckInterval liteEventFullDispatchDelayTime
        liteEventFullDispatchDelayTimeForWildcardGroup liteLagLatencyCollectEnable liteLagLatencyTopK
        liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
        maxLiteSubscriptionCount minLiteTTl maxClientEventCount""",
    "slaves copy the log as in 4.9.4, without flow control": """
        enableNetWorkFlowControl haFlowControlEnable maxHaTransferByteInSecond maxSlaveResendLength
        syncMasterFlushOffsetWhenStartup""",
    "there is no other implementation of the store": """
        enableRunningFlagsInFlush messageStorePlugIn putConsumeQueueDataByFileChannel putMessageTimeout
        sharedByteBufferNum spinLockCollisionRetreatOptimalDegree storePathEpochFile storeType topicQueueLockNum
        useABSLock wakeCommitWhenPutMessage wakeFlushWhenPutMessage writeWithoutMmap""",
    "a shutdown answers waiting requests and closes all connections": "enableShutdownGracefully shutdownWaitTimeSeconds",
    "checksums of properties are neither written nor checked": "enabledAppendPropCRC forceVerifyPropCRC",
    "the only name servers are those of namesrvAddr": """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval loadBalancePollNameServerInterval scanAvailableNameSrv
        updateNameServerAddrPeriod""",
    "statistics and logs have no such detail": """
        isolateLogEnable printChannelGroups printChannelGroupsMinNum timerProgressLogIntervalMs""",
    "queues are allocated by the group's message request mode (setConsumeMode)": "serverLoadBalancerEnable",
    "there are no static subscriptions": "useStaticSubscription",
    "the kernel sizes socket buffers; maxUnsentBytesPerConnection limits unsent bytes": """
        serverSocketRcvBufSize serverSocketSndBufSize writeBufferHighWaterMark writeBufferLowWaterMark""",
    "timers are governed by timerPrecisionMs, timerMaxDelaySec and timerRollWindowSlot": """
        timerEnableRetryUntilSuccess timerInterceptDelayLevel timerSkipUnknownError timerWheelSnapshotFlush
        timerWheelSnapshotIntervalMs""",
    "transactions are checked by transactionTimeOut, transactionCheckInterval and transactionCheckMax": """
        transWriteOriginTransHalfEnable transactionOpBatchInterval transactionOpMsgMaxSize""",
    "deleteTopic deletes only the topic itself": "clearRetryTopicWhenDeleteTopic",
    "the store is served as soon as it is open": "disappearTimeAfterStart",
    "enableDLegerCommitLog=true is not supported": "enableBatchPush",
    "groups are created when they are first used": "enableCreateSysGroup",
    "light queues are limited by maxLmqConsumeQueueNum": "enableLmqQuota",
    "a topic takes messages of all types": "enableMixedMessageType",
    "messageIndexEnable enables the index": "indexFileReadEnable indexFileWriteEnable",
    "the limit is diskSpaceCleanForciblyRatio": "logicalDiskSpaceCleanForciblyThreshold",
    "the limit is deleteFileBatchMax": "maxBatchDeleteFilesNum",
    "the size of the answer limits how many queue units a pull reads": "maxConsumeQueueScan maxFilterMessageSize",
    "4.9.4 ignores it too; the key is timerMaxDelaySec": "maxDelayTime",
    "the limit is that of the file format": "maxTopicLength",
    "the limits are the maxTransfer... keys": "pullBatchMaxMessageCount",
    "updateTopic always checks the name": "validateSystemTopicWhenUpdateTopic",
}

_NAMESRV: Final = {
    "one thread does the work; there are no thread pools or request queues": """
        clientCallbackExecutorThreads clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity
        clientWorkerThreads controllerRequestThreadPoolQueueCapacity controllerThreadPoolNums defaultThreadPoolNums
        defaultThreadPoolQueueCapacity processReadEvent unRegisterBrokerQueueCapacity""",
    "the controller is not supported; roles are fixed": """
        controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerStorePath controllerType
        electMasterMaxRetryCount enableElectUncleanMaster jraftConfig notifyBrokerRoleChanged
        scanInactiveMasterInterval""",
    "every request is served": "enableAllTopicList enableTopicList",
    "there is no other implementation of the store": "mappedFileSize",
    "a topic is deleted by deleteTopic": "deleteTopicWithBrokerRegistration",
    "requests are served from the start on": "needWaitForService waitSecondsForService",
    "the setting is orderMessageEnable": "returnOrderTopicConfigToBroker",
    "TLS is set by tls.server.mode": "useTLS",
    "nothing is read from an installation folder": "rocketmqHome",
    "name servers do not talk to each other": "namesrvAddr",
    "there is no cluster test mode": "productEnvName clusterTest",
    "one event loop serves all connections": """
        useEpollNativeSelector serverWorkerThreads serverSelectorThreads serverCallbackExecutorThreads
        serverOnewaySemaphoreValue serverAsyncSemaphoreValue serverPooledByteBufAllocatorEnable""",
    "the kernel sizes socket buffers": "serverSocketSndBufSize serverSocketRcvBufSize",
    "the backlog is 1024": "serverSocketBacklog",
    "maxUnsentBytesPerConnection limits unsent bytes": "writeBufferHighWaterMark writeBufferLowWaterMark",
}

_BOTH: Final = """
    channelNotActiveInterval clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
    clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    configBlackList connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup enableReconnectForGoAway
    enableShutdownGracefully maxReconnectIntervalTimeSeconds metricGrpcExporterIntervalInMills
    metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel metricsPromExporterHost
    metricsPromExporterPort scanAvailableNameSrv serverNettyWorkerGroupEnable shutdownWaitTimeSeconds
    socksProxyConfig
"""
"""Keys of `_BROKER` that name servers of Apache have too."""


def _by_key(families: dict[str, str]) -> dict[str, str]:
    return {key: why for why, keys in families.items() for key in keys.split()}


BROKER_KEYS: Final = _by_key(_BROKER)
NAMESRV_KEYS: Final = {key: BROKER_KEYS[key] for key in _BOTH.split()} | _by_key(_NAMESRV)
