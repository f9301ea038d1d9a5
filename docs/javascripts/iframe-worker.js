// Search without a server: browsers allow no worker on a page that is read from a file. This runs its script in a hidden
// frame instead. (MkDocs Material looks for this file by its name.)
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.loaded = new Promise((resolve) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow
          const script = inside.document.createElement("script")
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          script.src = url
          script.onload = () => resolve(inside)
          inside.document.body.append(script)
          this.frame.onload = null
        }
      })
      document.body.append(this.frame)
    }
    postMessage(data) {
      this.loaded.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
