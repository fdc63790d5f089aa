package tier

// The places between two steps. An entry of the manifest has two: before it is tried, and when it was read back.
const (
	pointCommit    = ".commit"
	pointCommitted = ".committed"

	pointOpened       = "open.read"      // the manifest was read
	pointRecover      = "recover"        // the entry that moves the end over what is lost
	pointCut          = "cut"            // the entry that takes the manifest back
	pointRestart      = "restart.begin"  // the local log is about to be dropped
	pointRestarted    = "restart.empty"  // it begins anew
	pointRefill       = "restart.refill" // batches of the bucket are about to be appended to it
	pointSeal         = "seal"           // a new active segment is about to be begun
	pointPutData      = "upload.data"    // the segment is about to be put
	pointPutAux       = "upload.aux"     // it is there; its sidecar is about to be put
	pointUpload       = "upload"         // the entry that adds it
	pointTell         = "tell"           // the log is about to hear of the tiered end
	pointMoveStart    = "start.local"    // the log start is about to move here
	pointStart        = "start"          // the entry that moves it in the manifest
	pointLost         = "lost"           // the entry that gives a range up
	pointDeleteLocal  = "local.delete"   // local segments are about to go
	pointDeletedLocal = "local.deleted"  // they are gone
	pointDrop         = "drop"           // the entry that drops segments
	pointDeleteObject = "object.delete"  // an object is about to go
	pointDelete       = "delete"         // the entry that confirms it
	pointPage         = "page"           // a page is about to be made; then the entry that names it
	pointSnapshot     = "snapshot"
	pointTrim         = "trim"
	pointSweep        = "sweep.list"   // orphans are about to be looked for
	pointSweepObject  = "sweep.object" // one is about to go
	pointClose        = "close"        // the entry that closes the partition whole
	pointDeleteTopic  = "topic.object" // an object of a deleted topic is about to go
)

// Points are the places between two steps at which Options.Hook is called, about in the order in which they are passed. A crash at
// any of them loses nothing.
var Points = []string{
	pointOpened,
	pointRecover + pointCommit, pointRecover + pointCommitted, pointCut + pointCommit, pointCut + pointCommitted,
	pointRestart, pointRestarted, pointRefill,
	pointSeal, pointPutData, pointPutAux, pointUpload + pointCommit, pointUpload + pointCommitted, pointTell,
	pointDeleteLocal, pointDeletedLocal,
	pointMoveStart, pointStart + pointCommit, pointStart + pointCommitted, pointLost + pointCommit, pointLost + pointCommitted,
	pointDrop + pointCommit, pointDrop + pointCommitted,
	pointDeleteObject, pointDelete + pointCommit, pointDelete + pointCommitted,
	pointPage, pointPage + pointCommit, pointPage + pointCommitted, pointSnapshot, pointTrim,
	pointSweep, pointSweepObject,
	pointClose + pointCommit, pointClose + pointCommitted,
	pointDeleteTopic,
}
